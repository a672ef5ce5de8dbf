// Joins the chunks of a head with its sink, and turns the result back. A group a head, a thread a pair.
// sizes: heads. now[3]: chunks.
const int n_heads = sizes[0], n_chunks = now[3];
const int head = int(threadgroup_position_in_grid.x);
const int column = 2 * int(thread_position_in_threadgroup.x);
if (column < D) {
  const float sink = sinks[head];
  float top = sink;
  for (int c = 0; c < n_chunks; c++) {
    const float t = shares[2 * (int64_t(c) * n_heads + head)];
    top = t > top ? t : top;
  }
  float total = exp(sink - top), a = 0.0f, b = 0.0f;
  for (int c = 0; c < n_chunks; c++) {
    const int64_t slot = int64_t(c) * n_heads + head;
    const float weight = exp(shares[2 * slot] - top);
    total += weight * shares[2 * slot + 1];
    a += weight * mixed[slot * D + column];
    b += weight * mixed[slot * D + column + 1];
  }
  a /= total;
  b /= total;
  if (column >= D - 64) {
    const int pair = (column - (D - 64)) / 2;
    const float c = turns[pair], s = turns[32 + pair];
    const float turned = a * c + b * s;
    b = b * c - a * s;
    a = turned;
  }
  out[int64_t(head) * D + column] = a;
  out[int64_t(head) * D + column + 1] = b;
}
