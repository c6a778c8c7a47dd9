// The few PTX instructions that the kernels use, each behind one small function.
#pragma once

#include <cstdint>

namespace quintet::cuda {

/// Address of shared memory as the asynchronous instructions want it.
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Keeps a value in its register. The compiler otherwise forms what depends on the thread alone anew in every round of a loop, to save
/// registers that nobody needs.
__device__ __forceinline__ void keep(int& value) { asm volatile("" : "+r"(value)); }
__device__ __forceinline__ void keep(uint32_t& value) { asm volatile("" : "+r"(value)); }
template <class T>
__device__ __forceinline__ void keep(T*& value) { asm volatile("" : "+l"(value)); }
/// The warp's index, which the compiler then knows to be the same in all of its lanes.
__device__ __forceinline__ int warp_index() { return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0); }

/// The 8 x 8 halves that a warp holds, lane (g, q) columns 2 q and 2 q + 1 of row g, turned over.
__device__ __forceinline__ uint32_t transposed_8x8(uint32_t halves) {
  uint32_t r;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0,%1;" : "=r"(r) : "r"(halves));
  return r;
}

/// D += A . B for one 16 x 8 x 16 tile, FP32 accumulators. Fragment layout: PTX ISA, "mma.m16n8k16 with .f16". Volatile keeps
/// the order of the source, in which chains of products alternate; the compiler's own order ran them one after the other.
__device__ __forceinline__ void mma_f16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// The same from zero: D = A . B.
__device__ __forceinline__ void mma_f16_fresh(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%10,%10,%10};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.f));
}
/// Four 8 x 8 matrices of halves from shared memory: each lane gives the address of a row's 16 bytes, lanes 8 i to 8 i + 7 those of
/// matrix i, and gets two neighbours of row lane / 4 of each.
__device__ __forceinline__ void load_matrix_x4(uint32_t address, uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(address));
}

/// Lets the next kernel of the stream start (programmatic dependent launch); its own wait() still orders memory.
__device__ __forceinline__ void launch_dependents() {
#if QUINTET_CUDA_HOPPER
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/// Waits until the previous kernel of the stream has finished and its writes are visible. Weights may be read before.
__device__ __forceinline__ void wait_for_previous() {
#if QUINTET_CUDA_HOPPER
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

#if QUINTET_CUDA_HOPPER
/// By all threads of a warpgroup: from kNow registers each to kWanted, multiples of 8. More are waited for until other warpgroups have given
/// theirs back.
template <int kWanted, int kNow>
__device__ __forceinline__ void take_registers() {
  if constexpr (kWanted > kNow) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kWanted));
  if constexpr (kWanted < kNow) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kWanted));
}

__device__ __forceinline__ void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0],%1;" ::"r"(barrier), "r"(arrivals));
}
__device__ __forceinline__ void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;"); }
__device__ __forceinline__ void barrier_expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _,[%0],%1;" ::"r"(barrier), "r"(bytes));
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _,[%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared.b64 done,[%0],%1;\n@done bra ready;\nbra again;\nready:\n}"
      ::"r"(barrier), "r"(parity) : "memory");
}
/// The same where what is waited for was written or read by other blocks of the cluster.
__device__ __forceinline__ void barrier_wait_cluster(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done,[%0],%1;\n@done bra ready;\nbra again;\nready:\n}"
      ::"r"(barrier), "r"(parity) : "memory");
}
/// Where another block of the cluster has what lies at `address` in this one.
__device__ __forceinline__ uint32_t cluster_address(uint32_t address, int rank) {
  uint32_t r;
  asm("mapa.shared::cluster.u32 %0,%1,%2;" : "=r"(r) : "r"(address), "r"(rank));
  return r;
}
__device__ __forceinline__ int cluster_rank() {
  int r;
  asm("mov.u32 %0,%%cluster_ctarank;" : "=r"(r));
  return r;
}
__device__ __forceinline__ int cluster_size() {
  int r;
  asm("mov.u32 %0,%%cluster_nctarank;" : "=r"(r));
  return r;
}
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
__device__ __forceinline__ void barrier_arrive_cluster(uint32_t barrier) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _,[%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t to, float2 value) { asm volatile("st.shared.v2.f32 [%0],{%1,%2};" ::"r"(to), "f"(value.x), "f"(value.y) : "memory"); }
/// Volatile keeps the loads of a batch together.
__device__ __forceinline__ float2 load_shared_pair(uint32_t from) {
  float2 r;
  asm volatile("ld.shared.v2.f32 {%0,%1},[%2];" : "=f"(r.x), "=f"(r.y) : "r"(from) : "memory");
  return r;
}
/// The same from a block of the cluster.
__device__ __forceinline__ float2 load_cluster_pair(uint32_t from) {
  float2 r;
  asm volatile("ld.shared::cluster.v2.f32 {%0,%1},[%2];" : "=f"(r.x), "=f"(r.y) : "r"(from) : "memory");
  return r;
}
/// Bulk copy from global to shared memory that completes on a barrier; both 16-byte aligned. Weights are read once:
/// evict-first keeps them from pushing activations out of L2.
__device__ __forceinline__ void bulk_copy_weights(uint32_t to, const void* from, int bytes, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0],[%1],%2,[%3],%4;"
      ::"r"(to), "l"(from), "r"(bytes), "r"(barrier), "l"(0x12F0000000000000ull) : "memory");
}
__device__ __forceinline__ void bulk_copy(uint32_t to, const void* from, int bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1],%2,[%3];"
               ::"r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}
#endif

/// 16 bytes from global to shared memory, asynchronously (sm_80 and later).
__device__ __forceinline__ void copy_async_16(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0],[%1],16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void copy_async_8(uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0],[%1],8;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void copy_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory"); }

}  // namespace quintet::cuda
