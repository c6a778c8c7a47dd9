"""The peer's side of vs_llama_cpp.py and k_quants.py, run in a process (and an environment) of its own: one JSON object on stdout.

usage: llama_cpp_peer.py speed MODEL PROMPT_TOKENS DECODE_TOKENS THREADS SEED
       llama_cpp_peer.py first MODEL THREADS < IDS.json      load to first token, interpreter and imports apart
       llama_cpp_peer.py logits MODEL THREADS OUT.npy < IDS.json
       llama_cpp_peer.py quantize MODEL OUT.gguf FILE_TYPE THREADS [IMATRIX.gguf]
"""

import ctypes
import json
import resource
import sys
import time

import llama_cpp
import numpy as np


def quiet():
    callback = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(callback, ctypes.c_void_p(0))
    return callback  # must stay alive


class Context:
    """One model and one context through the low-level interface, so that no Python work is timed."""

    def __init__(self, path, tokens, threads):
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = max(tokens, 512)
        parameters.n_threads = parameters.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, parameters)
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.memory = llama_cpp.llama_get_memory(self.context)

    def decode(self, ids, position, all_logits=False):
        batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = token, position + i, 1, 0
            batch.logits[i] = all_logits or i + 1 == len(ids)
        if llama_cpp.llama_decode(self.context, batch):
            sys.exit("llama_decode failed")
        llama_cpp.llama_batch_free(batch)

    def logits(self, rows):
        pointer = llama_cpp.llama_get_logits(self.context)
        return np.ctypeslib.as_array(pointer, shape=(rows, self.vocabulary))

    def clear(self):
        llama_cpp.llama_memory_clear(self.memory, True)


def speed(path, prompt, decode, threads, seed):
    run = Context(path, prompt + decode, threads)
    ids = np.random.default_rng(seed).integers(0, run.vocabulary, prompt + decode).tolist()
    run.decode(ids[:8], 0)  # warm up
    run.clear()
    start = time.perf_counter()
    run.decode(ids[:prompt], 0)
    run.logits(1)[0, 0]
    prompt_s = time.perf_counter() - start
    start = time.perf_counter()
    for i in range(decode):
        run.decode([ids[prompt + i]], prompt + i)
        int(run.logits(1)[0].argmax())
    decode_s = time.perf_counter() - start
    return {"prompt_tokens_per_s": prompt / prompt_s, "decode_tokens_per_s": decode / decode_s,
            "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "system": llama_cpp.llama_print_system_info().decode()}


def first(path, threads):
    ids = json.load(sys.stdin)
    start = time.perf_counter()
    run = Context(path, len(ids), threads)
    run.decode(ids, 0)
    token = int(run.logits(1)[0].argmax())
    return {"first_token_s": time.perf_counter() - start, "token": token}


def logits(path, threads, out):
    ids = json.load(sys.stdin)
    run = Context(path, len(ids), threads)
    run.decode(ids, 0, all_logits=True)
    np.save(out, run.logits(len(ids)).astype(np.float32))
    return {"rows": len(ids)}


def read_importance(path):
    """Mean squares by weight, from llama.cpp's GGUF form of importance matrices."""
    from gguf import GGUFReader
    tensors = {tensor.name: tensor.data for tensor in GGUFReader(path).tensors}
    return {name.removesuffix(".in_sum2"): np.ravel(sums).astype(np.float32) / np.ravel(tensors[name.replace(".in_sum2", ".counts")])[0]
            for name, sums in tensors.items() if name.endswith(".in_sum2")}


def quantize(path, out, file_type, threads, imatrix=None):
    llama_cpp.llama_backend_init()
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype, parameters.nthread = file_type, threads
    importance = read_importance(imatrix) if imatrix else {}
    entry = llama_cpp.llama_cpp.llama_model_imatrix_data
    entries = (entry * (len(importance) + 1))()  # ends with one without a name
    for i, (name, values) in enumerate(importance.items()):
        entries[i].name, entries[i].size = name.encode(), values.size
        entries[i].data = values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    if importance:
        parameters.imatrix = entries
    start, cpu_start = time.perf_counter(), time.process_time()
    if llama_cpp.llama_model_quantize(path.encode(), out.encode(), ctypes.byref(parameters)):
        sys.exit("llama_model_quantize failed")
    return {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu_start}


def main():
    keep = quiet()
    verb, path, *rest = sys.argv[1:]
    if verb == "speed":
        result = speed(path, *map(int, rest))
    elif verb == "first":
        result = first(path, int(rest[0]))
    elif verb == "quantize":
        result = quantize(path, rest[0], int(rest[1]), int(rest[2]), *rest[3:])
    else:
        result = logits(path, int(rest[0]), rest[1])
    print(json.dumps(result))
    del keep


if __name__ == "__main__":
    main()
