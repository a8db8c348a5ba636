from torch import nn


class MultilingualIntent(nn.Module):
    LANGUAGES = ("en", "de", "zh")

    def __init__(self, dim=32, intents=12):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.LayerNorm(dim))
        self.heads = {language: nn.Linear(dim, intents) for language in self.LANGUAGES}

    def forward(self, sentence, language="de"):
        features = self.trunk(sentence)
        return self.heads[language](features)
