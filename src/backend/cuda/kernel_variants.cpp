// Asks each launcher what it would launch.
#include "backend/cuda/kernel_variants.h"

#include "backend/cuda/path.h"
#include "backend/cuda/rt/status.h"

namespace quintet {
namespace {

using namespace cuda;

struct Variant {
  int tiles, rows;  ///< ActLayout::tiles, and the most rows that they hold
  Epilogue epilogue;
};
constexpr Variant kVariants[] = {
    {0, 1, Epilogue::whole},    {0, 1, Epilogue::gated},   {8, 8, Epilogue::partial},   {8, 8, Epilogue::whole},
    {16, 16, Epilogue::partial}, {16, 16, Epilogue::whole},  {32, 32, Epilogue::partial}, {32, 32, Epilogue::whole},
    {64, 64, Epilogue::partial}, {64, 64, Epilogue::whole}, {kPromptRows, kPromptRows, Epilogue::whole}, {kPromptRows, kPromptRows, Epilogue::gated},
};
constexpr std::string_view kResults[] = {"slices", "sums", "gated"};

/// As of gate and up of a 70B model: more outputs than any grid has blocks for.
constexpr int kOutputs = 57344, kInputs = 8192;

cudaError_t ask(const ProductKernels& product, const Variant& variant, const LaunchSite& site) {
  const int pieces = kInputs / product.piece_k;
  if (variant.tiles == 0) {
    ChainParams chain = {.phases = 1, .dim = 128};
    chain.phase[0] = {.kind = variant.epilogue == Epilogue::gated ? PhaseKind::gated : PhaseKind::whole, .n = kOutputs, .pieces = pieces};
    return product.chain(chain, site);
  }
  const ProductParams params = {.n = kOutputs, .pieces = pieces, .rows = variant.rows, .out_stride = kOutputs};
  return product.product(params, variant.tiles, variant.epilogue, site);
}

}  // namespace

Result<std::vector<KernelVariant>> cuda_kernel_variants(const CudaOptions& options, WeightFormat format) {
  cudaDeviceProp properties;
  QUINTET_CUDA(cudaGetDeviceProperties(&properties, options.ordinal));
  QUINTET_CUDA(cudaSetDevice(options.ordinal));
  TRY_ASSIGN(const DeviceKernels kernels, device_kernels(options.path, properties));
  const ProductKernels* product = kernels.kernels->product(format);
  if (!product) return bad_input(fmt::format("{}: the GPU has no kernels for it", format_info(format).name));
  std::vector<KernelVariant> all;
  for (const Variant& variant : kVariants) {
    const bool gates = variant.tiles == 0 || kernels.kernels->gates_prompts;
    if (variant.epilogue == Epilogue::gated && !gates) continue;
    std::vector<KernelUse> uses;
    LaunchSite site = launch_site(properties, options, /*stream=*/nullptr);
    site.uses = &uses;
    const cudaError_t code = ask(*product, variant, site);
    if (code != cudaSuccess && code != cudaErrorLaunchOutOfResources) return device_status(code, "kernel use").error();
    const KernelUse& use = uses.back();  // sums of inputs come before the product
    all.push_back({.tile_rows = variant.rows, .result = kResults[static_cast<size_t>(variant.epilogue)], .threads = use.threads, .registers = use.registers,
                   .local_bytes = use.local_bytes, .shared_bytes = use.shared_bytes, .blocks = use.blocks});
  }
  return all;
}

}  // namespace quintet
