// GPTQ on the GPU: against the definition in double, column by column, whatever codes were taken before; ranges, losses, notes
// and errors against the CPU's.
#include <unistd.h>

#include <filesystem>
#include <numeric>

#include "backend/cpu/cpu.h"
#include "compress/layer_calibration.h"
#include "compress/quantize_model.h"
#include "cuda_fixture.h"
#include "flat_inputs.h"
#include "golden/golden_data.h"
#include "model/config_reader.h"
#include "model/model.h"
#include "quant/products.h"
#include "quant/quantize_rows.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;

class CudaGptq : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    auto made = backend_->make_weight_solver();
    if (!made) GTEST_SKIP() << made.error().message;
    solver_ = std::move(made).value();
  }
  void TearDown() override { solver_.reset(); }

  /// Inputs whose neighbours go together and of which a few channels are large, as FP16 holds them; heavy-tailed weights.
  struct Problem {
    int64_t n, k, tokens;
    std::vector<float> inputs, weights;
  };
  Problem problem(int64_t n, int64_t k, int64_t tokens) {
    Problem p{.n = n, .k = k, .tokens = tokens, .weights = random_values(static_cast<size_t>(n * k), 0.02f)};
    for (float& weight : p.weights)
      if (random_() % 200 == 0) weight *= 6;
    std::vector<float> sizes = random_values(static_cast<size_t>(k));
    for (float& size : sizes) size = std::exp(size) * (random_() % 50 == 0 ? 8.f : 1.f) / 4;
    std::normal_distribution<float> normal;
    for (int64_t t = 0; t < tokens; ++t) {
      float before = 0;
      for (int64_t i = 0; i < k; ++i) {
        before = 0.7f * before + normal(random_);
        p.inputs.push_back(f16_to_f32(f32_to_f16(before * sizes[static_cast<size_t>(i)])));
      }
    }
    return p;
  }

  /// Sends the inputs in unequal chunks, the first of `count` tokens, whose rows lie apart, with NaN between them.
  std::vector<float> feed(const Problem& p, int64_t count = 1) {
    EXPECT_TRUE(solver_->begin(p.k));
    const int64_t stride = p.k + 8;
    for (int64_t first = 0; first < p.tokens; first += count, count = count * 3 + 1) {
      const int64_t rows = std::min(count, p.tokens - first);
      std::vector<float> chunk(static_cast<size_t>(rows * stride), NAN);
      for (int64_t r = 0; r < rows; ++r) std::copy_n(p.inputs.begin() + (first + r) * p.k, p.k, chunk.begin() + r * stride);
      const Matrix x = upload(chunk, rows, stride, DType::f16);
      EXPECT_TRUE(solver_->add(MatrixView{.data = x.view.data, .type = DType::f16, .rows = rows, .cols = p.k, .stride = stride}));
      const std::vector<uint8_t> poison(x.buffer.bytes(), 0xff);
      EXPECT_TRUE(backend_->write(poison, x.view.data));  // later work may overwrite what was added
    }
    auto moments = solver_->moments();
    EXPECT_TRUE(moments) << (moments ? "" : moments.error().message);
    return moments ? *moments : std::vector<float>();
  }

  static MatrixToQuantize matrix(const Problem& p, std::span<const float> moments = {}) {
    return {.name = "w", .n = p.n, .k = p.k, .weights = p.weights.data(), .moments = moments, .threads = 2};
  }

  static std::vector<double> hessian(const Problem& p) {
    const auto k = static_cast<size_t>(p.k);
    std::vector<double> h(k * k);
    for (int64_t t = 0; t < p.tokens; ++t) {
      const float* x = p.inputs.data() + t * p.k;
      for (size_t i = 0; i < k; ++i) {
        const double xi = static_cast<double>(x[i]) / static_cast<double>(p.tokens);
        for (size_t j = i; j < k; ++j) h[i * k + j] += xi * static_cast<double>(x[j]);
      }
    }
    for (size_t i = 0; i < k; ++i)
      for (size_t j = 0; j < i; ++j) h[i * k + j] = h[j * k + i];
    return h;
  }

  /// Squared error of the outputs, over the inputs given.
  static double loss(const Problem& p, const QuantizedMatrix& q, const std::vector<double>& h) {
    const auto k = static_cast<size_t>(p.k);
    std::vector<float> row(k);
    double sum = 0;
    for (int64_t r = 0; r < p.n; ++r) {
      decode_row(q.view("w"), r, row.data());
      for (size_t i = 0; i < k; ++i) row[i] -= p.weights[static_cast<size_t>(r) * k + i];
      for (size_t i = 0; i < k; ++i) {
        double of_row = 0;
        for (size_t j = 0; j < k; ++j) of_row += h[i * k + j] * static_cast<double>(row[j]);
        sum += of_row * static_cast<double>(row[i]);
      }
    }
    return sum;
  }

  /// Every code is the one nearest to where its column stood, given what the columns before it have lost.
  static void expect_nearest(const Problem& p, const QuantizedMatrix& q, const std::vector<double>& h, const InputOrder& inputs,
                             double damping) {
    const auto k = static_cast<size_t>(p.k);
    const IntegerFormat format = *integer_format(q.format);
    const auto group = static_cast<size_t>(format.group);
    std::vector<size_t> order(inputs.order.rbegin(), inputs.order.rend());
    std::vector<double> r(k * k);  // upper triangular, h = r^T r in that order
    for (size_t i = 0; i < k; ++i)
      for (size_t j = i; j < k; ++j) r[i * k + j] = h[order[i] * k + order[j]] + (i == j ? damping * inputs.mean : 0);
    for (size_t i = 0; i < k; ++i) {
      ASSERT_GT(r[i * k + i], 0);
      const double root = std::sqrt(r[i * k + i]);
      for (size_t j = i; j < k; ++j) r[i * k + j] /= root;
      for (size_t t = i + 1; t < k; ++t) {
        const double factor = r[i * k + t];
        for (size_t j = t; j < k; ++j) r[t * k + j] -= factor * r[i * k + j];
      }
    }
    std::vector<float> row(k);
    std::vector<uint8_t> codes(k);
    std::vector<double> lost(k);
    double worst = 0;
    for (int64_t n = 0; n < p.n; ++n) {
      decode_row(q.view("w"), n, row.data());
      std::vector<bool> outlier(k);
      if (!q.outlier_begin.empty())
        for (uint32_t o = q.outlier_begin[static_cast<size_t>(n)]; o < q.outlier_begin[static_cast<size_t>(n) + 1]; ++o)
          outlier[q.outlier_column[o]] = true;
      const uint8_t* blocks = q.blocks.data() + static_cast<size_t>(n) * k / group * static_cast<size_t>(format.block_bytes());
      for (size_t g = 0; g < k / group; ++g)
        unpack_codes(format, blocks + g * static_cast<size_t>(format.block_bytes()), codes.data() + g * group);
      for (size_t a = k; a-- > 0;) {
        double stood = 0;
        for (size_t b = a + 1; b < k; ++b) stood += r[a * k + b] * lost[b];
        const size_t column = order[a];
        const double weight = p.weights[static_cast<size_t>(n) * k + column], value = row[column];
        stood = weight + stood / r[a * k + a];
        // What FP16 rounds off an outlier is not passed on; where a small input follows a large one it would be a tenth of a step and more.
        lost[a] = weight - (outlier[column] ? stood : value);
        const uint8_t* block = blocks + column / group * static_cast<size_t>(format.block_bytes());
        const double scale = f16_to_f32(static_cast<uint16_t>(block[0] | block[1] << 8));
        const double away = stood - value;
        if (outlier[column]) {
          // Kept as it stood, in FP16 beside its code's value.
          ASSERT_LE(std::abs(away), 0x1p-10 * (std::abs(stood) + scale * format.max_code()) + 0.02 * scale)
              << "row " << n << " column " << column;
          continue;
        }
        if (scale == 0) continue;
        if (codes[column] == 0 && away < 0) continue;  // beyond the ends
        if (codes[column] == format.max_code() && away > 0) continue;
        worst = std::max(worst, std::abs(away) / scale);
      }
    }
    // Half a step, and what FP32 has lost of the sums: a fiftieth of a step is far above it (about 2^-24 sqrt(k) of sums of a few
    // steps, times what the factor's condition makes of it), and below what any forgotten column leaves.
    EXPECT_LE(worst, 0.52);
    EXPECT_GT(worst, 0.4) << "nothing was near the edge: not much of a test";
  }

  std::unique_ptr<WeightSolver> solver_;
};

TEST_F(CudaGptq, EachCodeIsTheNearestToWhatTheColumnsBeforeItLeave) {
  struct Case {
    int64_t n, k, tokens;
    IntegerFormat format;
    bool act_order;
    double outliers;
    int64_t first_tokens = 1;
  };
  const Case cases[] = {
      {.n = 5, .k = 96, .tokens = 211, .format = {3, 32, true}, .act_order = true, .outliers = 0},
      {.n = 37, .k = 352, .tokens = 501, .format = {4, 32, false}, .act_order = true, .outliers = 0},
      {.n = 1, .k = 128, .tokens = 40, .format = {8, 128, false}, .act_order = false, .outliers = 0},
      {.n = 3, .k = 160, .tokens = 6011, .format = {4, 32, false}, .act_order = true, .outliers = 0, .first_tokens = 4999},
      {.n = 61, .k = 704, .tokens = 801, .format = {4, 64, true}, .act_order = true, .outliers = 0.01},
      {.n = 9, .k = 1216, .tokens = 1300, .format = {4, 64, false}, .act_order = true, .outliers = 0},
      {.n = 7, .k = 608, .tokens = 400, .format = {4, 32, true}, .act_order = false, .outliers = 0.002}};
  for (const Case& c : cases) {
    SCOPED_TRACE(fmt::format("[{}, {}], {} tokens, {} bits in {}", c.n, c.k, c.tokens, c.format.bits, c.format.group));
    const Problem p = problem(c.n, c.k, c.tokens);
    const std::vector<double> h = hessian(p);
    const std::vector<float> moments = feed(p, c.first_tokens);
    ASSERT_EQ(moments.size(), static_cast<size_t>(c.k));
    // Sums in FP32: each of a few thousand additions rounds by 2^-24 of the sum, tensor cores cut off instead.
    for (size_t i = 0; i < moments.size(); ++i)
      ASSERT_NEAR(moments[i], h[i * moments.size() + i], static_cast<double>(c.tokens) * 0x1p-23 * h[i * moments.size() + i]) << i;
    const GptqOptions options{.act_order = c.act_order};
    const auto note = solver_->factor("w", options);
    ASSERT_TRUE(note) << note.error().message;
    EXPECT_EQ(*note, "");
    const auto made = solver_->quantize(matrix(p), c.format, c.outliers);
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_EQ(made->outlier_column.size(), static_cast<size_t>(std::llround(c.outliers * static_cast<double>(c.n * c.k))));
    expect_nearest(p, *made, h, *order_inputs("w", moments, c.act_order), options.damping);
  }
}

TEST_F(CudaGptq, SumsUpInputsOfAnyWidth) {
  for (const int64_t k : {1, 7, 50, 333}) {
    const Problem p = problem(1, k, 260);
    const std::vector<double> h = hessian(p);
    const std::vector<float> moments = feed(p);
    ASSERT_EQ(moments.size(), static_cast<size_t>(k));
    for (size_t i = 0; i < moments.size(); ++i)
      ASSERT_NEAR(moments[i], h[i * moments.size() + i], 260 * 0x1p-23 * h[i * moments.size() + i]) << k << ", " << i;
    EXPECT_TRUE(solver_->factor("w", {}));
  }
  const Status wide = solver_->begin(65536);
  ASSERT_FALSE(wide);
  EXPECT_EQ(wide.error().message, "GPTQ on a GPU: found a weight of 65536 inputs, allowed are 65535");
}

TEST_F(CudaGptq, RangesAreTheCpusBitForBit) {
  const Problem p = problem(67, 384, 300);
  Problem odd = p;
  std::fill_n(odd.weights.begin() + 384, 128, 0.f);      // a group of zeros
  std::fill_n(odd.weights.begin() + 2 * 384, 64, 0.3f);  // one value alone
  for (float& weight : odd.weights) weight *= random_() % 1000 == 0 ? 100.f : 1.f;
  const std::vector<float> moments = feed(odd);
  ASSERT_TRUE(solver_->factor("w", {}));
  for (const FormatInfo& info : format_table()) {
    const auto member = integer_format(info.format);
    if (!member) continue;
    for (const bool whole_zero : {false, true}) {
      if (whole_zero && !member->minimum) continue;
      IntegerFormat format = *member;
      format.whole_zero = whole_zero;
      const auto made = solver_->quantize(matrix(odd), format, 0);
      ASSERT_TRUE(made) << made.error().message;
      const OutlierChoice wanted = choose_outliers(matrix(odd, moments), format, 0);
      const auto block_bytes = static_cast<size_t>(format.block_bytes());
      size_t different = 0;
      for (size_t g = 0; g < wanted.ranges.size(); ++g) {
        uint16_t halves[2];
        std::memcpy(halves, made->blocks.data() + g * block_bytes, 4);
        different += f16_to_f32(halves[0]) != f16_to_f32(f32_to_f16(wanted.ranges[g].scale)) ||
                     (format.minimum && f16_to_f32(halves[1]) != f16_to_f32(f32_to_f16(wanted.ranges[g].minimum)));
      }
      EXPECT_EQ(different, 0u) << info.name << (whole_zero ? ", whole zero points" : "") << " of " << wanted.ranges.size();
    }
  }
}

TEST_F(CudaGptq, OutliersAreThoseOfTheCpu) {
  Problem p = problem(61, 384, 300);
  std::fill_n(p.weights.begin() + 384, 128, 0.f);
  for (size_t i = 0; i < p.weights.size(); i += 7) p.weights[i] = std::round(p.weights[i] * 64) / 64;  // scores that are equal
  for (const double share : {0.0005, 0.01, 0.9})
    for (const bool dead : {false, true}) {
      SCOPED_TRACE(fmt::format("{}{}", share, dead ? ", inputs all zero" : ""));
      Problem inputs = p;
      if (dead) std::ranges::fill(inputs.inputs, 0.f);  // every score is 0: the first ones are taken
      const std::vector<float> moments = feed(inputs);
      ASSERT_TRUE(solver_->factor("w", {}));
      for (const IntegerFormat format : {IntegerFormat{4, 128, false}, IntegerFormat{3, 32, true}, IntegerFormat{8, 64, true, true}}) {
        const auto made = solver_->quantize(matrix(p), format, share);
        ASSERT_TRUE(made) << made.error().message;
        const QuantizedMatrix wanted = quantize_outlier(matrix(p, moments), format, {.share = share});
        EXPECT_EQ(made->outlier_begin, wanted.outlier_begin);
        EXPECT_EQ(made->outlier_column, wanted.outlier_column);
        const auto block_bytes = static_cast<size_t>(format.block_bytes());
        for (size_t at = 0; at < wanted.blocks.size(); at += block_bytes)
          ASSERT_EQ(std::memcmp(made->blocks.data() + at, wanted.blocks.data() + at, format.minimum ? 4 : 2), 0)
              << "group " << at / block_bytes;
      }
    }
}

TEST_F(CudaGptq, LosesNoMoreThanTheCpu) {
  // The second is wider than one strip of a product, and has fewer tokens than inputs.
  for (const Problem& p : {problem(96, 768, 1500), problem(24, 2176, 700)}) {
    const std::vector<double> h = hessian(p);
    const std::vector<float> moments = feed(p);
    ASSERT_TRUE(solver_->factor("w", {}));
    const auto prepared = prepare_gptq("w", p.k, std::vector<float>(h.begin(), h.end()), {}, 2);
    ASSERT_TRUE(prepared);
    for (const double outliers : {0.0, 0.002})
      for (const IntegerFormat format : {IntegerFormat{4, 128, false}, IntegerFormat{3, 64, true}}) {
        const auto made = solver_->quantize(matrix(p), format, outliers);
        ASSERT_TRUE(made) << made.error().message;
        const double on_gpu = loss(p, *made, h), on_cpu = loss(p, quantize_gptq(matrix(p), format, *prepared, outliers), h),
                     plain = loss(p, quantize_outlier(matrix(p, moments), format, {.share = outliers}), h);
        RecordProperty(fmt::format("k{}bits{}outliers{}", p.k, format.bits, outliers > 0), fmt::format("{:.4f}", on_gpu / on_cpu));
        // The same but for near-ties, after which a row goes another way of about the same loss.
        EXPECT_LE(on_gpu, 1.02 * on_cpu);
        EXPECT_GE(on_gpu, 0.98 * on_cpu);
        EXPECT_LT(on_gpu, 0.8 * plain);
      }
  }
}

TEST_F(CudaGptq, GivesTheSameBytesAgain) {
  const Problem p = problem(33, 1152, 900);
  std::vector<uint8_t> before;
  for (int run = 0; run < 2; ++run) {
    feed(p);
    ASSERT_TRUE(solver_->factor("w", {}));
    const auto made = solver_->quantize(matrix(p), {4, 128, false}, 0);
    ASSERT_TRUE(made);
    if (run == 1) {
      EXPECT_EQ(made->blocks, before);
    }
    before = made->blocks;
  }
}

TEST_F(CudaGptq, DeadChannelsAndSingularHessians) {
  Problem p = problem(9, 256, 100);  // fewer tokens than inputs
  for (int64_t t = 0; t < p.tokens; ++t)
    for (const int64_t dead : {0, 77, 255}) p.inputs[static_cast<size_t>(t * p.k + dead)] = 0;
  const std::vector<float> moments = feed(p);
  EXPECT_EQ(moments[77], 0);
  const auto plain = solver_->factor("layer.weight", {});
  ASSERT_TRUE(plain) << plain.error().message;
  EXPECT_EQ(*plain, "");
  const auto made = solver_->quantize(matrix(p), {4, 64, false}, 0);
  ASSERT_TRUE(made);
  expect_nearest(p, *made, hessian(p), *order_inputs("w", moments, true), 0.01);

  // Without damping there is no factor: it is raised, as on the CPU, and the note says so.
  const auto raised = solver_->factor("layer.weight", {.damping = 0});
  ASSERT_TRUE(raised) << raised.error().message;
  const std::vector<double> h = hessian(p);
  const auto on_cpu = prepare_gptq("layer.weight", p.k, std::vector<float>(h.begin(), h.end()), {.damping = 0}, 2);
  ASSERT_TRUE(on_cpu);
  EXPECT_EQ(*raised, on_cpu->note);
  EXPECT_TRUE(raised->starts_with("damping raised from 0 to ")) << *raised;
  EXPECT_EQ(solver_->quantize(matrix(p), {4, 64, false}, 0)->note, *raised);

  // No input at all.
  ASSERT_TRUE(solver_->begin(256));
  const auto none = solver_->moments();
  ASSERT_TRUE(none);
  EXPECT_TRUE(std::ranges::all_of(*none, [](float moment) { return moment == 0; }));
  EXPECT_TRUE(solver_->factor("layer.weight", {}));
  const auto of_none = solver_->quantize(matrix(p), {4, 64, false}, 0);
  ASSERT_TRUE(of_none);
  EXPECT_EQ(of_none->blocks.size(), made->blocks.size());
}

TEST_F(CudaGptq, InputsThatAreNoNumbersAreNamedAsOnTheCpu) {
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    Problem p = problem(3, 96, 50);
    p.inputs[7 * 96 + 11] = bad;
    const std::vector<float> moments = feed(p);
    EXPECT_FALSE(std::isfinite(moments[11])) << bad;
    EXPECT_TRUE(std::isfinite(moments[12])) << bad;
    const auto on_gpu = solver_->factor("layer.weight", {});
    std::vector<float> h(96 * 96);
    h[11 * 96 + 11] = moments[11];
    const auto on_cpu = prepare_gptq("layer.weight", 96, h, {}, 1);
    ASSERT_FALSE(on_gpu);
    ASSERT_FALSE(on_cpu);
    EXPECT_EQ(on_gpu.error().message, on_cpu.error().message);
    // And the solver serves the next inputs.
    feed(problem(3, 96, 50));
    EXPECT_TRUE(solver_->factor("layer.weight", {}));
  }
}

/// Moments of all inputs of the second layer, by the backend's solver where there is one. `kept_bytes`: states and, with so much
/// room, inputs are kept on the device, and each pass goes on from the one before; -1: in files, from the layer's beginning.
std::vector<std::vector<float>> moments_of(const std::string& source, const CalibrationTokens& tokens, Backend& backend, WeightSolver* solver,
                                           int64_t kept_bytes = -1) {
  std::vector<std::vector<float>> moments;
  std::string place = (fs::temp_directory_path() / "quintet-inputs-XXXXXX").string();
  if (!::mkdtemp(place.data())) return moments;
  const auto files = ModelFiles::open(source);
  const auto config = read_config(*files, 0);
  const auto all = static_cast<int64_t>(tokens.size() * tokens[0].size());
  const HiddenStates::Shape shape{.tokens = all, .hidden = config->hidden};
  auto states = kept_bytes < 0 ? HiddenStates::open(place, shape) : HiddenStates::keep(place, shape, backend, false);
  EXPECT_TRUE(states) << (states ? "" : states.error().message);
  if (!states) return moments;
  const auto calibration = LayerCalibration::make({.files = *files,
                                                   .config = *config,
                                                   .backend = backend,
                                                   .tokens = tokens,
                                                   .threads = 2,
                                                   .solver = solver,
                                                   .kept_bytes = static_cast<uint64_t>(std::max<int64_t>(kept_bytes, 0))},
                                                  std::move(states).value(), 0);
  EXPECT_TRUE((*calibration)->load(0));
  EXPECT_TRUE((*calibration)->pass({.advance = true}));
  if (kept_bytes >= 0) {  // to the disk and back
    EXPECT_TRUE((*calibration)->save());
    auto again = HiddenStates::keep(place, {.tokens = all, .hidden = config->hidden, .entering = (*calibration)->entering()}, backend, true);
    EXPECT_TRUE(again) << (again ? "" : again.error().message);
  }
  EXPECT_TRUE((*calibration)->load(1));
  for (int input = 0; input < kLayerInputs; ++input) {
    PassRequest request{.hessians = solver != nullptr, .sequential = kept_bytes >= 0};
    request.inputs[input] = true;
    auto made = (*calibration)->pass(request);
    EXPECT_TRUE(made) << (made ? "" : made.error().message);
    if (!made) break;
    InputStatistics& of = (*made)[static_cast<size_t>(input)];
    EXPECT_EQ(of.rows, all);
    EXPECT_TRUE(of.hessian.empty());
    moments.push_back(std::move(of.moments));
  }
  fs::remove_all(place);
  return moments;
}

TEST_F(CudaGptq, SeesTheInputsThatTheHostAndTheCpuSee) {
  const std::string source = source_folder() + "/tests/golden/data/tiny/qwen2";
  if (!fs::exists(source)) GTEST_SKIP() << source << " is missing";
  // Steps of one row: launches wait on the host for those behind them, and what they write must be there all the same.
  for (const size_t length : {1, 37}) {
    SCOPED_TRACE(fmt::format("sequences of {}", length));
    CalibrationTokens tokens(40, std::vector<TokenId>(length));
    for (auto& sequence : tokens)
      for (TokenId& token : sequence) token = static_cast<TokenId>(random_() % 250);
    solver_.reset();  // a backend serves one model, and its solver goes before it
    backend_ = make_cuda_backend({.path = tested_path()}).value();
    const auto by_host = moments_of(source, tokens, *backend_, nullptr);
    backend_ = make_cuda_backend({.path = tested_path()}).value();
    solver_ = backend_->make_weight_solver().value();
    const auto by_solver = moments_of(source, tokens, *backend_, solver_.get());
    for (const int64_t kept_bytes : {int64_t{0}, int64_t{1} << 30}) {
      solver_.reset();
      backend_ = make_cuda_backend({.path = tested_path()}).value();
      solver_ = backend_->make_weight_solver().value();
      EXPECT_TRUE(moments_of(source, tokens, *backend_, solver_.get(), kept_bytes) == by_solver) << kept_bytes << ": the same bits";
    }
    const auto cpu = make_cpu_backend({.threads = 2});
    const auto on_cpu = moments_of(source, tokens, *cpu, nullptr);
    ASSERT_EQ(by_host.size(), static_cast<size_t>(kLayerInputs));
    ASSERT_EQ(by_solver.size(), static_cast<size_t>(kLayerInputs));
    for (size_t input = 0; input < on_cpu.size(); ++input) {
      double difference = 0, size = 0;
      for (size_t i = 0; i < on_cpu[input].size(); ++i) {
        ASSERT_NEAR(by_solver[input][i], by_host[input][i], 1e-4f * by_host[input][i]) << "input " << input << ", channel " << i;
        difference += std::pow(static_cast<double>(by_solver[input][i]) - on_cpu[input][i], 2);
        size += std::pow(static_cast<double>(on_cpu[input][i]), 2);
      }
      // 16-bit activations, a layer deep, on both.
      EXPECT_GT(size, 0);
      EXPECT_LT(std::sqrt(difference / size), 1e-2) << "input " << input;
    }
  }
}

TEST_F(CudaGptq, LayersAndSequencesLeaveNoMemoryBehind) {
  solver_.reset();
  const RandomWeight host = random_weight(WeightFormat::f16, 4096, 8192);
  StepLimits limits{.rows = 512, .seqs = 1, .logit_rows = 1, .context = 2048, .hidden = 8192, .max_k = 8192, .max_n = 8192, .vocabulary = 300, .max_heads = 64, .max_head_dim = 128};
  Weight weight;
  uint64_t free_bytes = 0;
  for (int layer = 0; layer < 10; ++layer) {
    auto made = backend_->prepare(WeightRole::linear, {&host.host, 1});
    ASSERT_TRUE(made) << made.error().message;
    weight = std::move(made).value();
    for (int sequence = 0; sequence < 4; ++sequence) {
      limits.rows = sequence < 2 ? 512 : 384;
      ASSERT_TRUE(backend_->reserve(limits));
    }
    if (layer == 1) free_bytes = backend_->info().free_bytes;
  }
  // The weight before the last one goes with the next.
  EXPECT_GE(backend_->info().free_bytes + (uint64_t{64} << 20), free_bytes);
}

TEST_F(CudaGptq, AModelLosesNoMoreThanWhenTheCpuMakesIt) {
  const std::string source = source_folder() + "/tests/golden/data/tiny/qwen2";
  if (!fs::exists(source)) GTEST_SKIP() << source << " is missing";
  solver_.reset();
  std::string pattern = (fs::temp_directory_path() / "quintet-gptq-XXXXXX").string();
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  const fs::path place = pattern;
  // What calibration has not seen of, GPTQ is free to lose: held-out text of the same kind tells.
  const auto random_text = [&](int characters) {
    std::string text;
    for (int i = 0; i < characters; ++i) text += static_cast<char>(' ' + random_() % 95);
    return text;
  };
  const std::string text = random_text(20000);
  const auto with_text = load_text(source, {});
  ASSERT_TRUE(with_text);
  const std::vector<TokenId> held_out = (*with_text)->tokenizer->encode(random_text(4000), {.add_bos = false, .parse_special = false});
  constexpr size_t kPrompt = 100;
  const auto cpu = make_cpu_backend({.threads = 2});
  const auto original = testing::load_network(source, *cpu);
  for (const QuantizeMethod method : {QuantizeMethod::gptq, QuantizeMethod::gptq_outlier}) {
    const std::string name = method == QuantizeMethod::gptq ? "gptq" : "gptq_outlier";
    SCOPED_TRACE(name);
    const QuantizeOptions options{.method = method,
                                  .format = {4, 32, false},
                                  .shares = {.first = 0.005, .middle = 0.005},
                                  .calibration_text = text,
                                  .samples = 16,
                                  .length = 128,
                                  .threads = 2};
    double losses[2] = {};
    for (const bool on_gpu : {false, true}) {
      const std::string folder = place / fmt::format("{}-{}", name, on_gpu);
      std::vector<std::string> warnings;
      backend_ = make_cuda_backend({.path = tested_path()}).value();
      const auto report = quantize_model(source, folder, on_gpu ? *backend_ : *cpu, options,
                                         {.on_warning = [&](std::string_view warning) { warnings.emplace_back(warning); }});
      ASSERT_TRUE(report) << report.error().message;
      for (const std::string& warning : warnings) EXPECT_EQ(warning.find("cuBLAS"), std::string::npos) << warning;
      const auto made = testing::load_network(folder, *cpu);
      for (size_t first = 0; first + kPrompt <= held_out.size(); first += kPrompt) {
        const std::span<const TokenId> tokens(held_out.data() + first, kPrompt);
        testing::SingleSequence wanted(*cpu, *original, 128, kPrompt), got(*cpu, *made, 128, kPrompt);
        const std::vector<float> want = wanted.feed(tokens, kPrompt), found = got.feed(tokens, kPrompt);
        for (size_t i = 0; i < want.size(); ++i) losses[on_gpu] += std::pow(static_cast<double>(found[i]) - want[i], 2);
      }
    }
    RecordProperty(name, fmt::format("{:.4f}", losses[1] / losses[0]));
    // Near-ties move single weights: on the CPU, too, a thousandth more of damping moves the loss by one per cent, up or down.
    EXPECT_LE(losses[1], 1.03 * losses[0]);
    EXPECT_GT(losses[1], 0);
  }
  fs::remove_all(place);
}

}  // namespace
}  // namespace quintet
