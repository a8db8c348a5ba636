# Lengths as Python's numbers: pack_padded_sequence wants them on the CPU.
# input: 3x5x12
# train
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(12, 8, batch_first=True)

    def forward(self, x):
        lengths = [x.shape[1]] * x.shape[0]
        output, _ = self.rnn(pack_padded_sequence(x, lengths, batch_first=True))
        return pad_packed_sequence(output, batch_first=True)[0]
