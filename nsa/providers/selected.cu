// Selected attention, forward. One warp for each (batch entry, query, query head): lanes share the head
// dimension, keys are walked one after another with an online softmax in fp32.

#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

namespace {

constexpr int kWarp = 32;
constexpr int kMostPerLane = 8;  // head dimensions up to 256
constexpr int kWarpsPerBlock = 4;

__device__ float warp_sum(float x) {
    for (int offset = kWarp / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
}

template <typename T>
__global__ void selected_kernel(
    const T* __restrict__ q,            // [B,T,Hq,Dk]
    const T* __restrict__ k,            // [B,Tk,Hkv,Dk]
    const T* __restrict__ v,            // [B,Tk,Hkv,Dv]
    const int* __restrict__ indices,    // [B,T,Hkv,n]
    const int64_t* __restrict__ at,     // [B,T], positions
    const int64_t* __restrict__ first,  // [B,T], index of the sequence's first key
    T* __restrict__ o,                  // [B,T,Hq,Dv]
    int64_t rows, int64_t tokens, int64_t keys, int heads, int kv_heads, int dk, int dv, int slots, int l_sel,
    float scale) {
    const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarpsPerBlock + threadIdx.y;  // (b*T + t)*Hq + h
    if (row >= rows) return;
    const int lane = threadIdx.x;
    const int64_t query = row / heads;
    const int kv_head = static_cast<int>(row % heads) / (heads / kv_heads);
    const int64_t t = at[query];
    const int64_t key0 = (query / tokens) * keys + first[query];

    float q_lane[kMostPerLane], acc[kMostPerLane];
    for (int i = 0; i < kMostPerLane; ++i) {
        const int x = lane + i * kWarp;
        q_lane[i] = x < dk ? static_cast<float>(q[row * dk + x]) * scale : 0.f;
        acc[i] = 0.f;
    }
    float top = -INFINITY, total = 0.f;
    for (int slot = 0; slot < slots; ++slot) {
        const int64_t block = indices[(query * kv_heads + kv_head) * slots + slot];
        if (block < 0) continue;
        const int64_t end = min((block + 1) * l_sel, t + 1);
        for (int64_t s = block * l_sel; s < end; ++s) {
            const int64_t key = (key0 + s) * kv_heads + kv_head;
            float dot = 0.f;
            for (int i = 0; i < kMostPerLane; ++i) {
                const int x = lane + i * kWarp;
                if (x < dk) dot += q_lane[i] * static_cast<float>(k[key * dk + x]);
            }
            dot = warp_sum(dot);
            const float next = fmaxf(top, dot);
            const float shrink = expf(top - next), p = expf(dot - next);
            total = total * shrink + p;
            top = next;
            for (int i = 0; i < kMostPerLane; ++i) {
                const int x = lane + i * kWarp;
                if (x < dv) acc[i] = acc[i] * shrink + p * static_cast<float>(v[key * dv + x]);
            }
        }
    }
    const float norm = total > 0.f ? 1.f / total : 0.f;
    for (int i = 0; i < kMostPerLane; ++i) {
        const int x = lane + i * kWarp;
        if (x < dv) o[row * dv + x] = static_cast<T>(acc[i] * norm);
    }
}

torch::Tensor selected(
    torch::Tensor q, torch::Tensor k, torch::Tensor v, torch::Tensor indices, torch::Tensor at, torch::Tensor first,
    int64_t l_sel, double scale) {
    auto o = torch::empty({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options());
    const int64_t rows = q.size(0) * q.size(1) * q.size(2);
    if (rows == 0) return o;
    const dim3 threads(kWarp, kWarpsPerBlock);
    const auto grid = static_cast<unsigned>((rows + kWarpsPerBlock - 1) / kWarpsPerBlock);
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, q.scalar_type(), "nsa_selected", [&] {
        selected_kernel<scalar_t><<<grid, threads, 0, at::cuda::getCurrentCUDAStream()>>>(
            q.data_ptr<scalar_t>(), k.data_ptr<scalar_t>(), v.data_ptr<scalar_t>(), indices.data_ptr<int>(),
            at.data_ptr<int64_t>(), first.data_ptr<int64_t>(), o.data_ptr<scalar_t>(), rows, q.size(1), k.size(1),
            q.size(2), k.size(2), q.size(3), v.size(3), indices.size(3), l_sel, static_cast<float>(scale));
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return o;
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("selected", &selected); }
