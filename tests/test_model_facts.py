"""What is told of a model file, whatever is in it."""

from pathlib import Path

import gguf
import numpy as np

from ds4agent.model_facts import describe


def test_info_on_metadata_of_wrong_types_is_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "odd.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_string("llama.context_length", "many")
    writer.add_uint32("tokenizer.ggml.tokens", 5)
    writer.add_uint32("general.name", 7)
    writer.add_array("general.file_type", [1, 2])
    writer.add_tensor("output_norm.weight", np.zeros(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    lines, is_usable = describe(path)
    assert not is_usable and any("'many' tokens" in line for line in lines)
