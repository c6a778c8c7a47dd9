// GPTQ on a backend's own solver: the same calls in the same order as on the CPU, and without one, the CPU's way and a word.
#include "backend/weight_solver.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "backend/cpu/cpu.h"
#include "compress/quantize_model.h"
#include "quant/products.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;

const std::string kSource = std::string(QUINTET_SOURCE_DIR) + "/tests/golden/data/tiny/qwen2";

/// The CPU's functions behind the interface, so that results are the same bytes.
class HostSolver : public WeightSolver {
 public:
  HostSolver(Backend& backend, std::string& calls) : backend_(backend), calls_(calls) {}

  Status begin(int64_t k) override {
    calls_ += 'b';
    k_ = k, rows_ = 0;
    hessian_.assign(static_cast<size_t>(k * k), 0);
    return {};
  }
  Status add(ConstMatrixView x) override {
    if (calls_.back() != 'a') calls_ += 'a';
    const size_t bytes = dtype_bytes(x.type);
    std::vector<uint8_t> raw(static_cast<size_t>(x.cols) * bytes);
    std::vector<float> values(static_cast<size_t>(x.rows * x.cols));
    for (int64_t row = 0; row < x.rows; ++row) {
      TRY(backend_.read(static_cast<const uint8_t*>(x.data) + static_cast<size_t>(row * x.stride) * bytes, raw));
      const WeightFormat format = x.type == DType::f16 ? WeightFormat::f16 : x.type == DType::bf16 ? WeightFormat::bf16 : WeightFormat::f32;
      format_info(format).decode(raw.data(), static_cast<size_t>(x.cols), values.data() + row * x.cols);
    }
    const FloatMatrix inputs{values.data(), x.rows, x.cols, x.cols};
    add_product(inputs, inputs, 1, true, 1, {hessian_.data(), k_, k_, k_});
    rows_ += x.rows;
    return {};
  }
  Result<std::vector<float>> moments() override {
    calls_ += 'm';
    std::vector<float> moments;
    for (int64_t i = 0; i < k_; ++i) {
      for (int64_t j = i; j < k_; ++j) hessian_[static_cast<size_t>(i * k_ + j)] *= 1 / static_cast<float>(rows_);
      moments.push_back(hessian_[static_cast<size_t>(i * k_ + i)]);
    }
    mirror({hessian_.data(), k_, k_, k_}, true, 1);
    return moments;
  }
  Result<std::string> factor(std::string_view name, const GptqOptions& options) override {
    calls_ += 'f';
    TRY_ASSIGN(made_, prepare_gptq(name, k_, hessian_, options, 1));
    return made_.note;
  }
  Result<QuantizedMatrix> quantize(const MatrixToQuantize& matrix, const IntegerFormat& format, double outlier_share) override {
    calls_ += 'q';
    return quantize_gptq(matrix, format, made_, outlier_share);
  }

 private:
  Backend& backend_;
  std::string& calls_;
  int64_t k_ = 0, rows_ = 0;
  std::vector<float> hessian_;
  GptqInputs made_;
};

/// Fine operations alone: what fuses may keep results where only its own next operation looks for them.
class FineOps : public Ops {
 public:
  explicit FineOps(Ops& inner) : inner_(inner) {}
  void embed(const StepView& step, const EmbedArgs& args) override { inner_.embed(step, args); }
  void linear(const LinearArgs& args) override { inner_.linear(args); }
  void rms_norm(ConstMatrixView x, const NormArgs& norm, MatrixView out) override { inner_.rms_norm(x, norm, out); }
  void rope_store(const StepView& step, const RopeStoreArgs& args) override { inner_.rope_store(step, args); }
  void attend(const StepView& step, const AttendArgs& args) override { inner_.attend(step, args); }
  void gate(const GateArgs& args) override { inner_.gate(args); }
  void add(ConstMatrixView x, MatrixView out) override { inner_.add(x, out); }
  void gather(const StepView& step, ConstMatrixView x, MatrixView out) override { inner_.gather(step, x, out); }
  void sample(const StepView& step, const SampleArgs& args) override { inner_.sample(step, args); }
  void attn_in(const StepView&, const AttnInArgs&) override { ADD_FAILURE() << "attn_in"; }
  void rope_store_attend(const StepView&, const RopeStoreAttendArgs&) override { ADD_FAILURE() << "rope_store_attend"; }
  void attn_out(const StepView&, const ProjectArgs&) override { ADD_FAILURE() << "attn_out"; }
  void mlp_in(const StepView&, const MlpInArgs&) override { ADD_FAILURE() << "mlp_in"; }
  void mlp_out(const StepView&, const ProjectArgs&) override { ADD_FAILURE() << "mlp_out"; }

 private:
  Ops& inner_;
};

enum class Solver { none, host, missing };

/// The CPU backend's fine operations, with or without a solver.
class SolvingBackend : public Backend {
 public:
  SolvingBackend(Backend& inner, Solver solver) : inner_(inner), ops_(inner.ops()), solver_(solver) {}
  BackendInfo info() const override { return inner_.info(); }
  Numerics numerics() const override { return inner_.numerics(); }
  Ops& ops() override { return ops_; }
  Result<Buffer> allocate(size_t bytes, BufferUse use) override { return inner_.allocate(bytes, use); }
  Result<uint64_t> packed_bytes(WeightRole role, std::span<const HostWeight> parts) const override {
    return inner_.packed_bytes(role, parts);
  }
  Result<uint64_t> scratch_bytes(const StepLimits& limits) const override { return inner_.scratch_bytes(limits); }
  Result<Weight> prepare(WeightRole role, std::span<const HostWeight> parts) override { return inner_.prepare(role, parts); }
  Status unpack(const Weight& weight, int64_t first, int64_t count, float* out) override {
    return inner_.unpack(weight, first, count, out);
  }
  PageClass page_class(int32_t layers, int32_t kv_heads, int32_t head_dim, int32_t tokens) const override {
    return inner_.page_class(layers, kv_heads, head_dim, tokens);
  }
  Status reserve(const StepLimits& limits) override { return inner_.reserve(limits); }
  Result<StepView> stage(const StepInputs& inputs) override { return inner_.stage(inputs); }
  Status finish(const Sampled* sampled, std::span<Sampled> out) override { return inner_.finish(sampled, out); }
  Status read(const void* device, std::span<uint8_t> out) override { return inner_.read(device, out); }
  Status write(std::span<const uint8_t> bytes, void* device) override { return inner_.write(bytes, device); }
  Result<std::unique_ptr<WeightSolver>> make_weight_solver() override {
    if (solver_ == Solver::missing) return not_found("found no library for it");
    if (solver_ == Solver::none) return Backend::make_weight_solver();
    return std::unique_ptr<WeightSolver>(std::make_unique<HostSolver>(inner_, calls));
  }

  std::string calls;

 private:
  Backend& inner_;
  FineOps ops_;
  Solver solver_;
};

std::string bytes_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(WeightSolver, TakesTheCpusPlaceAndGivesTheSameModel) {
  const fs::path place = fs::path(::testing::TempDir()) / ("weight-solver-" + std::to_string(::getpid()));
  fs::create_directories(place);
  std::string text;
  for (int i = 0; i < 300; ++i) text += "Line " + std::to_string(i * i) + " of a text to calibrate with; ";
  for (const QuantizeMethod method : {QuantizeMethod::gptq, QuantizeMethod::gptq_outlier, QuantizeMethod::outlier}) {
    std::string expected;
    for (const Solver solver : {Solver::none, Solver::host, Solver::missing}) {
      SCOPED_TRACE(static_cast<int>(method) * 10 + static_cast<int>(solver));
      const auto cpu = make_cpu_backend({.threads = 1});
      SolvingBackend backend(*cpu, solver);
      const fs::path folder = place / std::to_string(static_cast<int>(method) * 10 + static_cast<int>(solver));
      std::vector<std::string> warnings;
      const auto report =
          quantize_model(kSource, folder, backend,
                         {.method = method, .format = {4, 32, false}, .calibration_text = text, .samples = 4, .length = 64, .threads = 1},
                         {.on_warning = [&](std::string_view warning) { warnings.emplace_back(warning); }});
      ASSERT_TRUE(report) << report.error().message;
      const bool gptq = method != QuantizeMethod::outlier;
      EXPECT_EQ(std::ranges::count(warnings, "cpu: found no library for it"), gptq && solver == Solver::missing ? 1 : 0);
      // Of each layer: four Hessians, q, k and v behind the first, gate and up behind the third.
      const std::string layer = "bamfqqqbamfqbamfqqbamfq";
      if (gptq && solver == Solver::host) {
        EXPECT_EQ(backend.calls, layer + layer);
      } else {
        EXPECT_EQ(backend.calls, "");
      }
      const std::string made = bytes_of(folder / "model.safetensors");
      ASSERT_GT(made.size(), 1000u);
      if (expected.empty()) expected = made;
      EXPECT_TRUE(made == expected);
    }
  }
  fs::remove_all(place);
}

}  // namespace
}  // namespace quintet
