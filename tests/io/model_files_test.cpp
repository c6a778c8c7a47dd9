// One view over GGUF files and Hugging Face folders: what is found, what is refused by name, and who decides.
#include "io/model_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "io/file_builder.h"

namespace quintet {
namespace {

using test::GgufBuilder;
using test::message_of;
using test::safetensors_of;
using test::TempFolder;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kConfig =
    R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","vision_config":null})";

/// Tensors `a` F16 [2, 3] and `b` F32 [5].
test::Bytes two_tensors() {
  return safetensors_of(
      R"({"a":{"dtype":"F16","shape":[2,3],"data_offsets":[0,12]},"b":{"dtype":"F32","shape":[5],"data_offsets":[12,32]}})",
      32);
}
test::Bytes one_tensor(const std::string& name, const std::string& dtype = "BF16") {
  const int bytes = dtype == "F8_E4M3" || dtype == "U8" ? 4 : dtype == "I64" ? 32 : dtype == "I32" ? 16 : 8;
  return safetensors_of(
      fmt::format(R"({{"{}":{{"dtype":"{}","shape":[4],"data_offsets":[0,{}]}}}})", name, dtype, bytes),
      static_cast<size_t>(bytes));
}
std::string open_message(const std::string& path, const OpenOptions& options = {}) {
  const auto files = ModelFiles::open(path, options);
  if (!files) {
    EXPECT_THAT(files.error().message, testing::AllOf(HasSubstr("found "), HasSubstr("allowed "))) << path;
  }
  return message_of(files);
}

TEST(ModelFiles, OpensAGgufFile) {
  const TempFolder folder;
  const auto bytes = test::sample_gguf().build();
  const auto path = folder.write("m.gguf", bytes);
  folder.write("config.json", kConfig);            // repositories of GGUF files often keep one
  for (const auto& way : {path, folder.path()}) {  // a folder with one GGUF is that GGUF
    auto opened = ModelFiles::open(way);
    ASSERT_TRUE(opened) << message_of(opened);
    const ModelFiles files = std::move(*opened);
    EXPECT_EQ(files.kind(), ModelFiles::Kind::gguf);
    ASSERT_NE(files.gguf(), nullptr);
    EXPECT_EQ(files.file_bytes(), bytes.size());
    EXPECT_THAT(files.weight_paths(), ElementsAre(path));
    const auto* cube = files.find("cube");
    ASSERT_NE(cube, nullptr);
    EXPECT_EQ(cube->weight.n, 6);
    EXPECT_EQ(cube->weight.k, 4);
    EXPECT_EQ(cube->weight.name, "cube");
    EXPECT_EQ(cube->weight.format, WeightFormat::f16);
    EXPECT_EQ(cube->weight.bytes.size(), 48u);
    EXPECT_THAT(cube->shape, ElementsAre(2, 3, 4));
    EXPECT_EQ((*files.require("norm.weight"))->weight.n, 1);
    EXPECT_EQ(message_of(files.require("gone")),
              path + ": tensor 'gone': found nothing, allowed is a weight of this name");
    EXPECT_TRUE(files.texts().config.empty());
  }
}

TEST(ModelFiles, OpensAFolderOfOneFile) {
  const TempFolder folder;
  folder.write("config.json", kConfig);
  folder.write("generation_config.json", "{}");
  folder.write("tokenizer.json", "{\"t\":1}");
  folder.write("tokenizer_config.json", "{\"c\":1}");
  folder.write("chat_template.jinja", "{{ messages }}");
  const auto path = folder.write("model.safetensors", two_tensors());
  auto opened = ModelFiles::open(folder.path());
  ASSERT_TRUE(opened) << message_of(opened);
  const ModelFiles files = std::move(*opened);
  EXPECT_EQ(files.kind(), ModelFiles::Kind::huggingface);
  EXPECT_EQ(files.gguf(), nullptr);
  EXPECT_EQ(files.texts().config, kConfig);
  EXPECT_EQ(files.texts().generation_config, "{}");
  EXPECT_EQ(files.texts().tokenizer, "{\"t\":1}");
  EXPECT_EQ(files.texts().tokenizer_config, "{\"c\":1}");
  EXPECT_EQ(files.texts().chat_template, "{{ messages }}");
  ASSERT_NE(files.find("a"), nullptr);
  EXPECT_EQ(files.find("a")->weight.n, 2);
  EXPECT_EQ(files.find("a")->weight.k, 3);
  EXPECT_EQ(files.find("a")->weight.format, WeightFormat::f16);
  EXPECT_EQ(files.find("b")->weight.n, 1);
  EXPECT_EQ(files.find("b")->weight.bytes.size(), 20u);
  EXPECT_EQ(files.find("b")->weight.name, "b");
  EXPECT_THAT(files.weight_paths(), ElementsAre(path));
  EXPECT_EQ(files.file_bytes(), std::filesystem::file_size(path));
}

TEST(ModelFiles, ATensorWithoutElementsIsNoWeight) {
  const TempFolder folder;
  folder.write("config.json", "{}");
  folder.write("model.safetensors", test::safetensors_of(
      R"({"a":{"dtype":"F16","shape":[1099511627776,1099511627776,0],"data_offsets":[0,0]}})", 0));
  EXPECT_THAT(message_of(ModelFiles::open(folder.path())),
              HasSubstr("'a': found the shape [1099511627776, 1099511627776, 0], allowed are sizes of 1 and more"));
}

TEST(ModelFiles, TheIndexDecides) {
  const TempFolder folder;
  folder.write("config.json", kConfig);
  folder.write("model.safetensors", two_tensors());  // not named by the index: not looked at
  const auto first = folder.write("model-00001-of-00002.safetensors", two_tensors());
  const auto second = folder.write("model-00002-of-00002.safetensors", two_tensors());
  const auto index = [&](std::string_view map) {
    return folder.write(
        "model.safetensors.index.json",
        fmt::format(R"({{"metadata":{{"total_size":[1,{{"x":null}}]}},"weight_map":{}}})", map));
  };
  index(R"({"a":"model-00002-of-00002.safetensors","b":"model-00001-of-00002.safetensors"})");
  auto files = ModelFiles::open(folder.path());
  ASSERT_TRUE(files) << message_of(files);
  const auto path_of = [&](std::string_view name) {
    return files->weight_paths()[static_cast<size_t>(files->find(name)->file)];
  };
  EXPECT_EQ(path_of("a"), second);
  EXPECT_EQ(path_of("b"), first);
  EXPECT_EQ(files->tensors().size(), 2u);

  index(R"({"a":"model-00001-of-00002.safetensors"})");
  files = ModelFiles::open(folder.path());
  ASSERT_TRUE(files) << message_of(files);
  EXPECT_EQ(files->find("b"), nullptr) << "a tensor that the index leaves out is no part of the model";

  const auto says = [&](std::string_view map) {
    index(map);
    return open_message(folder.path());
  };
  EXPECT_THAT(
      says(R"({"c":"model-00001-of-00002.safetensors"})"),
      HasSubstr("weight_map: 'c': found 'model-00001-of-00002.safetensors', which has no such tensor"));
  EXPECT_THAT(says(R"({"a":"model-00003-of-00002.safetensors"})"), HasSubstr("which is missing"));
  for (const auto path : {"../model.safetensors", "/etc/passwd", "..", ".hidden.safetensors",
                          "x/y.safetensors", "", "a\\u0000.safetensors", "config.json", "a\\\\b.safetensors"})
    EXPECT_THAT(says(fmt::format(R"({{"a":"{}"}})", path)), HasSubstr("weight_map: 'a': found '")) << path;
  EXPECT_THAT(says(R"({"a":5})"), HasSubstr("weight_map: 'a': found an integer, allowed is a file name"));
  EXPECT_THAT(says(R"({"a":["model.safetensors"]})"), HasSubstr("found an array"));
  EXPECT_THAT(says(R"({"a":"model.safetensors","a":"model.safetensors"})"),
              HasSubstr("found the tensor twice"));
  EXPECT_THAT(says("[]"), HasSubstr("weight_map: found an array"));
  EXPECT_THAT(says("{},\"weight_map\":{}"), HasSubstr("weight_map: found it twice"));
  EXPECT_THAT(says("{"), HasSubstr("allowed is JSON"));
  folder.write("model.safetensors.index.json", "{}");
  EXPECT_THAT(open_message(folder.path()), HasSubstr("weight_map: found nothing"));
  folder.write("model.safetensors.index.json", "[1]");
  EXPECT_THAT(open_message(folder.path()), HasSubstr("the text: found an array, allowed is an object"));
}

TEST(ModelFiles, RefusesQuantizedAndOtherFoldersByName) {
  const TempFolder folder;
  folder.write("model.safetensors", two_tensors());
  const auto says = [&](std::string_view config) {
    folder.write("config.json", config);
    return open_message(folder.path());
  };
  EXPECT_EQ(says(kConfig), "no error");
  for (const auto method : {"exl2", "exl3", "vptq"})
    EXPECT_THAT(says(fmt::format(R"({{"quantization_config":{{"bits":4,"quant_method":"{}"}}}})", method)),
                HasSubstr(fmt::format("config.json: quantization_config: found '{}', allowed are gptq, awq", method)));
  EXPECT_THAT(says(R"({"quantization_config":{"load_in_4bit":true}})"),
              HasSubstr("found the keys 'load_in_4bit'"));
  EXPECT_THAT(says(R"({"quantization":{"group_size":64,"bits":4}})"),
              HasSubstr("found the keys 'bits', 'group_size'"));
  EXPECT_EQ(says(R"({"quantization_config":null})"), "no error");
  EXPECT_THAT(says(R"({"vision_config":{"hidden_size":1}})"),
              HasSubstr("found vision_config: a model of images or sound"));
  EXPECT_THAT(says(R"({"audio_config":{}})"), HasSubstr("found audio_config"));
  EXPECT_THAT(says("[]"), HasSubstr("config.json: found an array, allowed is an object"));
  EXPECT_THAT(says("{"), HasSubstr("config.json: byte 2"));
  EXPECT_THAT(says(std::string(100, '[')), HasSubstr("more than 64 deep"));
  EXPECT_THAT(says("{\"a\":" + std::string(100, '[')), HasSubstr("more than 64 deep"));

  says(kConfig);
  folder.write("job_new.json", "{}");
  EXPECT_THAT(open_message(folder.path()), HasSubstr("found the settings of a quantized model"));
  std::filesystem::remove(folder / "job_new.json");
  folder.write("quantize_config.json", "[]");
  EXPECT_THAT(open_message(folder.path()), HasSubstr("quantize_config.json: found no JSON object"));
  std::filesystem::remove(folder / "quantize_config.json");
  folder.write("model.safetensors", one_tensor("w", "F8_E4M3"));
  EXPECT_THAT(open_message(folder.path()),
              HasSubstr("tensor 'w': found the dtype F8_E4M3, allowed are F32, F16 and BF16"));
  folder.write("model.safetensors", one_tensor("w.qweight", "I32"));
  EXPECT_THAT(open_message(folder.path()), HasSubstr("tensor 'w.qweight': found the dtype I32"));
  folder.write("model.safetensors", one_tensor("model.visual.blocks.0.w"));
  EXPECT_THAT(open_message(folder.path()), HasSubstr("found a part of an image or sound encoder"));
  folder.write("model.safetensors", one_tensor("position_ids", "I64"));
  const auto counters = ModelFiles::open(folder.path());
  ASSERT_TRUE(counters) << message_of(counters);
  EXPECT_TRUE(counters->tensors().empty()) << "counters are no weights";

  std::filesystem::remove(folder / "model.safetensors");
  EXPECT_THAT(open_message(folder.path()), HasSubstr("found 0 .safetensors files"));
  folder.write("x.safetensors", two_tensors());
  EXPECT_EQ(open_message(folder.path()), "no error") << "one file under another name";
  folder.write("y.safetensors", two_tensors());
  EXPECT_THAT(open_message(folder.path()),
              HasSubstr("found 2 .safetensors files and no model.safetensors.index.json"));
}

TEST(ModelFiles, RefusesFoldersOfOtherKindsByName) {
  const auto says = [](const std::vector<std::string>& names) {
    const TempFolder folder;
    for (const auto& name : names) folder.write(name, "x");
    return open_message(folder.path());
  };
  EXPECT_THAT(says({}), HasSubstr("found a folder without config.json and without .gguf files"));
  EXPECT_THAT(says({"config.json"}), HasSubstr("config.json: byte 1"));
  EXPECT_THAT(says({"model.onnx"}), HasSubstr("found an ONNX model ('model.onnx')"));
  EXPECT_THAT(says({"a.gguf", "b.gguf"}),
              HasSubstr("found 2 GGUF files ('a.gguf', 'b.gguf'), allowed is one model"));
  const TempFolder folder;
  folder.write("config.json", kConfig);
  folder.write("pytorch_model-00001-of-00002.bin", "PK");
  EXPECT_THAT(open_message(folder.path()),
              HasSubstr("found PyTorch pickles ('pytorch_model-00001-of-00002.bin')"));
}

TEST(ModelFiles, RefusesFilesOfOtherKindsByName) {
  const TempFolder folder;
  const auto says = [&](std::string_view name, std::string_view content) {
    return open_message(folder.write(name, content));
  };
  EXPECT_THAT(says("m.onnx", "\x08\x07"), HasSubstr("found an ONNX model"));
  EXPECT_THAT(says("m.bin", std::string_view("PK\x03\x04....", 8)),
              HasSubstr("a zip archive (PyTorch pickles"));
  EXPECT_THAT(says("m.pt", "\x80\x02}"), HasSubstr("a Python pickle"));
  EXPECT_THAT(says("m.gguf", "version https://git-lfs.github.com/spec/v1\noid"),
              HasSubstr("a Git LFS pointer"));
  EXPECT_THAT(says("page.gguf", "<!DOCTYPE html>"), HasSubstr("an HTML page"));
  EXPECT_THAT(says("m.tflite", std::string_view("\x1c\0\0\0TFL3", 8)), HasSubstr("a TensorFlow Lite model"));
  EXPECT_THAT(says("m.h5", "\x89HDF\r\n\x1a\n"), HasSubstr("a Keras HDF5 model"));
  EXPECT_THAT(says("m.engine", "x"), HasSubstr("a TensorRT engine"));
  EXPECT_THAT(says("m.bin", "tjgg...................."), HasSubstr("a legacy GGML file"));
  EXPECT_THAT(says("m.txt", "hello world"), HasSubstr("magic: found 'hell', allowed is 'GGUF'"));
  EXPECT_THAT(open_message(folder.write("model.safetensors", two_tensors())),
              HasSubstr("name the folder that holds it"));
  for (const auto& [key, value, kind] :
       std::vector<std::array<std::string, 3>>{{"general.architecture", "clip", "(mmproj)"},
                                               {"general.type", "mmproj", "(mmproj)"},
                                               {"general.type", "adapter", "an adapter"},
                                               {"general.type", "imatrix", "an importance matrix"},
                                               {"general.architecture", "whisper", "a sound model"}})
    EXPECT_THAT(open_message(folder.write("x.gguf", GgufBuilder().text(key, value).build())),
                HasSubstr(kind));
  EXPECT_EQ(ModelFiles::open(folder / "gone").error().kind, ErrorKind::not_found);
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(open_message(folder / "pipe"),
              HasSubstr("found a device, pipe or socket, allowed is a regular file"));
}

TEST(ModelFiles, TextsAloneNeedNoWeights) {
  const TempFolder folder;
  const auto tokenizer = folder.write("tokenizer.json", "{}");
  folder.write("tokenizer_config.json", "{\"a\":1}");
  const OpenOptions texts{.weights = false};
  for (const auto& way : {folder.path(), tokenizer}) {
    const auto files = ModelFiles::open(way, texts);
    ASSERT_TRUE(files) << message_of(files);
    EXPECT_EQ(files->texts().tokenizer, "{}");
    EXPECT_EQ(files->texts().tokenizer_config, "{\"a\":1}");
    EXPECT_TRUE(files->tensors().empty());
  }
  EXPECT_THAT(open_message(folder.path()), HasSubstr("without config.json"));
  folder.write("config.json", R"({"quantization_config":{"quant_method":"gptq"}})");
  EXPECT_EQ(open_message(folder.path(), texts), "no error")
      << "the tokenizer of a model that is not read is good enough";
  const auto vocabulary = folder.write("v.gguf", GgufBuilder().text("general.architecture", "llama").build());
  EXPECT_EQ(open_message(vocabulary, texts), "no error");
  EXPECT_EQ(open_message(vocabulary), "no error") << "whether a network is needed is the loader's affair";
}

}  // namespace
}  // namespace quintet
