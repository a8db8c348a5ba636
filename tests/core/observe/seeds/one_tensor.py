"""Document 003: what there is, a tensor on the card, and NumPy."""

import torch

kind = "cuda" if torch.cuda.is_available() else "cpu"
device = torch.device(kind)
print(
    "torchVersion:{} \n cudaVersion:{} \n deviceType:{} \n deviceNumber:{}".format(  # noqa: UP032
        torch.__version__, torch.cuda.is_available(), kind, torch.cuda.device_count()
    )
)
print(torch.version.cuda is not None)
t = torch.tensor([1, 2, 3]).to(device)
print(t)
try:
    t.numpy()
except TypeError as error:
    print(f"TypeError: {error}")
print(t.cpu().numpy())
