"""Matrix products of 32-bit numbers: with TF32 on CUDA, and at twice the speed on AMD's processors."""

from .machine import cpu_name


def settle_products() -> None:
    """Allow TF32 on CUDA, and have oneDNN multiply matrices on an AMD processor, if it keeps all digits.

    torch's own choice, MKL, leaves half of each vector unused there: on a Zen 5 it reaches 105 billion operations a
    second and core, oneDNN 230, which is as exact (`benchmarks/README.md`). torch hands products of 32-bit numbers to
    oneDNN only where that may round them to bf16, the precision "medium", which on CUDA still means TF32 (torch 2.13).
    oneDNN rounds where this is quicker: on processors with AMX, which AMD's are not. A product of numbers that bf16
    does not have makes sure.
    """
    import torch  # not at the top, as in `machine`

    # By this function alone. Once a backend has been set by itself, torch refuses to say which precision is set, and
    # Lightning asks for it on a GPU.
    torch.set_float32_matmul_precision("high")
    if "AMD" not in cpu_name() or not torch.backends.mkldnn.is_available():
        return
    torch.set_float32_matmul_precision("medium")
    exact = torch.full((256, 256), 1 + 2**-12, dtype=torch.float32)
    if not torch.equal(exact @ torch.eye(256, dtype=torch.float32), exact):
        torch.set_float32_matmul_precision("high")
