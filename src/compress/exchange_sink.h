// Hugging Face folders whose compressed weights other engines read: GPTQ and AWQ.
#pragma once

#include <memory>

#include "base/result.h"
#include "compress/model_sink.h"
#include "compress/quantize_model.h"
#include "compress/tensor_plan.h"

namespace quintet {

/// bad_input, naming the first tensor or setting, where the layout cannot hold what was planned: it takes integers
/// without outliers, asymmetric ones with whole zero points (IntegerFormat::whole_zero), of one number of bits (AWQ: 4) and
/// one group size, for all linear layers.
Status check_exchange(const ModelFiles& source, const std::vector<TensorTask>& tasks, const QuantizeOptions& options);

/// GPTQ: version 1 of the format, of asymmetric weights version 2, groups in the order of the inputs (desc_act false). AWQ: "gemm".
/// Arguments as those of make_folder_sink().
Result<std::unique_ptr<ModelSink>> make_exchange_sink(WorkFolder& folder, const SinkPlan& plan,
                                                      const nlohmann::ordered_json& checkpoint,
                                                      const QuantizeOptions& options);

}  // namespace quintet
