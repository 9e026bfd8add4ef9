"""Addition of three numbers."""

from .add import Add


class Add3(Add):
    """``a + b + c``, where a carry can be 0, 1 or 2.

    ``3 + 5 + 7 = 15`` at three bits: prompt ``110+101+111``, completion ``11110`` in the five bits that ``7 + 7 + 7``
    takes, carries out of bits 0, 1, 2: ``1 1 1``. For ``7 + 7 + 7 = 21`` they are ``1 2 2``.
    """

    name = "add3"
    operands = 3
