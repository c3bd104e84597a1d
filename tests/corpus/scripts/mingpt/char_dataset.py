"""Characters of a text file."""

from dataclasses import dataclass

import torch
from torch.utils.data import Dataset


@dataclass
class DataConfig:
    path: str
    block_size: int


class CharDataset(Dataset):
    def __init__(self, config):
        with open(config.path, encoding="utf-8") as file:
            text = file.read()
        characters = sorted(set(text))
        numbers = {character: number for number, character in enumerate(characters)}
        self.vocab_size = len(characters)
        self.block_size = config.block_size
        self.data = torch.tensor([numbers[character] for character in text])

    def __len__(self):
        return len(self.data) - self.block_size

    def __getitem__(self, index):
        chunk = self.data[index : index + self.block_size + 1]
        return chunk[:-1], chunk[1:]
