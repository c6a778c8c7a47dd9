// Any bytes as a safetensors file: an error or tensors that lie side by side in the data.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "io/safetensors.h"

using namespace quintet;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = SafetensorsFile::parse({data, size}, "input");
  if (!file) {
    QUINTET_CHECK(file.error().message.find("input: ") == 0, "{}", file.error().message);
    return 0;
  }
  uint64_t tensor_bytes = 0;
  for (const auto& tensor : file->tensors()) {
    QUINTET_CHECK(file->find(tensor.name) == &tensor);
    QUINTET_CHECK(tensor.bytes.data() >= data && tensor.bytes.data() + tensor.bytes.size() <= data + size);
    uint64_t elements = 1;
    for (const auto dimension : tensor.shape) elements *= static_cast<uint64_t>(dimension);
    QUINTET_CHECK(elements * safetensors_dtype_bytes(tensor.dtype) == tensor.bytes.size());
    tensor_bytes += tensor.bytes.size();
  }
  QUINTET_CHECK(tensor_bytes < size);
  return 0;
}
