// A sublayer's input from the four streams of a token, and how its result is written back; the
// algorithm is told in the cpu world's file. A block is a token.
//   products [T, 24]: fn times the streams, not yet divided by the root of their mean square
//   out [T, D]: the mixed and normalised input; mix [T, 20]: post, then comb by rows
// sizes: D, rounds of Sinkhorn. numbers: eps of norms, eps of the mixing.
extern __shared__ float parts[]; // of each warp, then four of pre
const int width = sizes[0], n_fours = width / 4;
const float4* stream = reinterpret_cast<const float4*>(streams + int64_t(blockIdx.x) * 4 * width);
float* pre = parts + 32;
float squares = 0.0f;
for (int i = threadIdx.x; i < 4 * n_fours; i += blockDim.x) {
  float4 v = stream[i];
  squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
}
squares = block_sum(squares, parts);
const float inverse = 1.0f / sqrtf(squares / float(4 * width) + numbers[0]);
if (threadIdx.x < 32) { // both halves of the warp compute the same
  const float* m = products + int64_t(blockIdx.x) * 24;
  float* to = mix + int64_t(blockIdx.x) * 20;
  int lane = threadIdx.x, i = lane & 3, entry = lane & 15; // entry: of comb, row by row
  float eps = numbers[1];
  float read = 1.0f / (1.0f + expf(-(m[i] * inverse * scale[0] + base[i]))) + eps;
  float write = 2.0f / (1.0f + expf(-(m[4 + i] * inverse * scale[1] + base[4 + i])));
  float a = m[8 + entry] * inverse * scale[2] + base[8 + entry];
  float largest = fmaxf(a, __shfl_xor_sync(0xffffffffu, a, 1));
  largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
  a = expf(a - largest);
  for (int round = 0; round < 2 * sizes[1]; round++) { // softmax of rows, columns, rows, columns, ...
    int step = round % 2 ? 4 : 1;
    float sum = a + __shfl_xor_sync(0xffffffffu, a, step);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2 * step);
    a = round == 0 ? a / sum + eps : a / (sum + eps);
  }
  if (lane < 4) {
    pre[lane] = read;
    to[lane] = write;
  }
  if (lane < 16) to[4 + lane] = a;
}
__syncthreads();
float4* row = reinterpret_cast<float4*>(out + int64_t(blockIdx.x) * width);
squares = 0.0f;
for (int i = threadIdx.x; i < n_fours; i += blockDim.x) {
  float4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
  for (int a = 0; a < 4; a++) {
    float4 v = stream[a * n_fours + i];
    sum.x += pre[a] * v.x;
    sum.y += pre[a] * v.y;
    sum.z += pre[a] * v.z;
    sum.w += pre[a] * v.w;
  }
  squares += sum.x * sum.x + sum.y * sum.y + sum.z * sum.z + sum.w * sum.w;
  row[i] = sum;
}
squares = block_sum(squares, parts);
const float factor = 1.0f / sqrtf(squares / float(width) + numbers[0]);
for (int i = threadIdx.x; i < n_fours; i += blockDim.x) { // each thread reads what it wrote
  float4 v = row[i], n = reinterpret_cast<const float4*>(norm)[i];
  row[i] = float4{v.x * factor * n.x, v.y * factor * n.y, v.z * factor * n.z, v.w * factor * n.w};
}
