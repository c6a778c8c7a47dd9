# Finds nvcc or leaves the CUDA backend out. Sets QUINTET_HAVE_CUDA.
set(QUINTET_HAVE_CUDA OFF)
