"""The errors of this package: a device that cannot be used, a tensor that cannot be computed."""


class KernelError(Exception):
    """A message for the person and one imperative sentence saying what to do next."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class DeviceError(KernelError):
    """The requested device does not exist here."""


class TensorError(KernelError):
    """A tensor has a shape, a dtype or a block type that an operation does not take."""
