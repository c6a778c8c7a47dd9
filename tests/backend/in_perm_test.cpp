// Weights whose inputs lie in another order (act-order): the backends decode and multiply as if they lay in their own.
#include <algorithm>

#include "backend/reference/reference.h"
#include "cpu_weights.h"

namespace quintet::test {
namespace {

TEST(InPerm, BackendsDecodeAndMultiplyInTheInputsOwnOrder) {
  for (const auto& backend : {backend(), make_reference_backend()}) {
    const RandomWeight w(WeightFormat::int4_g64, 37, 256);
    std::vector<int32_t> order(256);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), rng());
    HostWeight host = w.host();
    host.in_perm = order;
    ASSERT_TRUE(check_side_data(host));
    const auto packed = backend->prepare(WeightRole::linear, {&host, 1});
    ASSERT_TRUE(packed) << packed.error().message;
    std::vector<float> rows(37 * 256);
    ASSERT_TRUE(backend->unpack(*packed, 0, 37, rows.data()));
    for (size_t r = 0; r < 37; ++r)
      for (size_t i = 0; i < 256; ++i) ASSERT_EQ(rows[r * 256 + static_cast<size_t>(order[i])], w.row(static_cast<int64_t>(r))[i]);
    const std::vector<float> x = normals(256);
    std::vector<float> out(37, NAN);
    backend->ops().linear({.x = {x.data(), DType::f32, 1, 256, 256}, .w = &*packed, .out = view(out, 1, 37)});
    for (size_t r = 0; r < 37; ++r) {
      double exact = 0, size = 0;
      for (size_t i = 0; i < 256; ++i) {
        const double term = static_cast<double>(x[i]) * rows[r * 256 + i];
        exact += term;
        size += std::abs(term);
      }
      EXPECT_NEAR(out[r], exact, (size + 5) * 0x1p-12);
    }
  }
}

}  // namespace
}  // namespace quintet::test
