// out = a packed matrix divided by 32, as half. A thread decodes a step of a row. sizes: rows, columns.
threadgroup uint words[Format::TABLE_WORDS + 1];
if (Format::TABLE_WORDS > 0) {
  Format::fill(table, words, thread_index_in_threadgroup, threads_per_threadgroup.x);
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
const uint n_columns = uint(sizes[1]);
const uint n_steps = n_columns / uint(Format::STEP);
const uint i = threadgroup_position_in_grid.x * threads_per_threadgroup.x + thread_index_in_threadgroup;
const uint row = i / n_steps;
const uint step = i % n_steps;
if (row < uint(sizes[0])) {
  Planes planes;
  planes.quants = quants;
  planes.high = high;
  planes.scales = scales;
  planes.factors = factors;
  const Format::Packed packed = Format::load(planes, uint64_t(row), n_columns, step);
  for (uint c = 0u; c < uint(Format::CHUNKS); c++) {
    const Chunk k = Format::chunk(packed, step, c, words);
    const uint64_t at = uint64_t(row) * uint64_t(n_columns) + uint64_t(Format::column(step, c));
    device half4* to = (device half4*)(out + at);
    to[0] = to_halves(k.w0, k.scale, k.offset);
    to[1] = to_halves(k.w1, k.scale, k.offset);
    to[2] = to_halves(k.w2, k.scale, k.offset);
    to[3] = to_halves(k.w3, k.scale, k.offset);
  }
}
