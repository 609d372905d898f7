"""A training script whose data come too slowly."""

import time

import torch
from model import make
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 120

    def __getitem__(self, number):
        time.sleep(0.01)
        return torch.randn(3, 64, 64), number % 10


def main():
    model, _ = make()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for images, labels in DataLoader(Images(), batch_size=4):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()


main()
