// Any bytes as a GGUF file: an error or a file whose every value and tensor can be read.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "io/gguf.h"

using namespace quintet;

namespace {

template <class T>
void named_error_or_value(const Result<T>& result) {
  if (!result) QUINTET_CHECK(result.error().message.find("input: ") == 0, "{}", result.error().message);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = GgufFile::parse({data, size}, "input");
  named_error_or_value(file);
  if (!file) return 0;
  for (const auto& value : file->values()) {
    QUINTET_CHECK(file->find(value.key) == &value);
    named_error_or_value(file->get_string(value.key));
    named_error_or_value(file->get_u64(value.key));
    named_error_or_value(file->get_i64(value.key));
    named_error_or_value(file->get_f32(value.key));
    named_error_or_value(file->get_bool(value.key));
    named_error_or_value(file->get_strings(value.key));
    named_error_or_value(file->get_i64s(value.key));
    named_error_or_value(file->get_f32s(value.key));
    named_error_or_value(file->get_bools(value.key));
    named_error_or_value(file->get_bytes(value.key));
    (void)file->describe(value);
  }
  uint64_t tensor_bytes = 0;
  for (const auto& tensor : file->tensors()) {
    QUINTET_CHECK(file->find_tensor(tensor.name) == &tensor);
    QUINTET_CHECK(tensor.bytes.data() >= data && tensor.bytes.data() + tensor.bytes.size() <= data + size);
    tensor_bytes += tensor.bytes.size();
    const auto& info = format_info(tensor.format);
    std::vector<float> block(static_cast<size_t>(info.block_weights));
    info.decode(tensor.bytes.data(), 1, block.data());
  }
  QUINTET_CHECK(tensor_bytes <= size);  // tensors never share bytes
  return 0;
}
