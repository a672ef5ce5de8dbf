// out[order[r]] = weights x[r] with the expert of row r; without experts out[r] = weights x[r]: see
// grouped_product. sizes: rows of weights of an expert, columns, rows of x.
extern __shared__ uint4 tile_shared[];
const Planes planes{quants, high, scales, factors};
grouped_product<Format, NT, WARPS>(
    reinterpret_cast<uint8_t*>(tile_shared), x, x_scales, planes, table, scaling,
    HAS_EXPERTS ? order : nullptr, HAS_EXPERTS ? tiles : nullptr, out, sizes[2], sizes[1],
    sizes[0]);
