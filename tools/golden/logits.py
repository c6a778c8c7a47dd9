"""Forward passes in FP32 and, where it matters, in FP64."""

import contextlib

import torch


@contextlib.contextmanager
def all_in_double(model):
    """Everything in FP64. Transformers casts norms and softmax to float32 by name; here that name means float64."""
    saved_dtype, saved_float32, saved_float = torch.get_default_dtype(), torch.float32, torch.Tensor.float
    torch.set_default_dtype(torch.float64)
    model.double()
    torch.float32 = torch.float64
    torch.Tensor.float = lambda self: self.double() if self.is_floating_point() else saved_float(self)
    try:
        yield
    finally:
        torch.float32, torch.Tensor.float = saved_float32, saved_float
        torch.set_default_dtype(saved_dtype)
        model.float()


@torch.no_grad()
def forward(model, ids):
    """Logits [tokens, vocabulary] as float64 numpy."""
    return model(torch.tensor([ids])).logits[0].double().numpy()


def forward_with_noise(model, ids):
    """Logits in FP32 and the largest difference to FP64."""
    single = forward(model, ids)
    with all_in_double(model):
        double = forward(model, ids)
    return single, abs(single - double).max()
