"""The state of a recurrent model is carried to the next piece of the text with its graph."""

import torch
from torch import nn


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(8, 256)

    def forward(self, piece, state):
        outputs = []
        for inputs in piece.unbind():
            state = self.cell(inputs, state)
            outputs.append(state[:, :1])
        return torch.stack(outputs), state


class Training:
    def __init__(self):
        self.model = Reader().to("cuda")
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.state = torch.zeros(512, 256, device="cuda")

    def piece(self):
        outputs, self.state = self.model(torch.zeros(32, 512, 8, device="cuda"), self.state)
        return outputs.square().mean()

    def run(self):
        for number in range(100):
            loss = self.piece()
            if number % 3 == 2:
                self.optimizer.zero_grad()
                loss.backward(retain_graph=True)


Training().run()
