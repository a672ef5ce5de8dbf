// out[r, f] = weight * silu(gate) * up of choice order[r]: see grouped_gate_up. sizes: F, C.
extern __shared__ uint4 tile_shared[];
const Planes gate{gate_quants, gate_high, gate_scales, gate_factors};
const Planes up{up_quants, up_high, up_scales, up_factors};
grouped_gate_up<Format, NT, WARPS>(
    reinterpret_cast<uint8_t*>(tile_shared), x, x_scales, gate, up, table, gate_scaling,
    up_scaling, order, tiles, weights, out, sizes[1], sizes[0], K, clamp[0]);
