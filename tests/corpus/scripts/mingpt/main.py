"""The shape of minGPT-ddp: a configuration file, a Trainer, a snapshot whose path the configuration names."""

import tomllib

import torch
from char_dataset import CharDataset, DataConfig
from model import GPT, GPTConfig, OptimizerConfig, create_optimizer
from torch.distributed import destroy_process_group, init_process_group
from trainer import Trainer, TrainerConfig


def main():
    with open("gpt2_train_cfg.toml", "rb") as file:
        config = tomllib.load(file)
    init_process_group(backend="gloo")
    torch.manual_seed(0)
    data_config = DataConfig(**config["data_config"])
    dataset = CharDataset(data_config)
    model = GPT(
        GPTConfig(**config["gpt_config"], vocab_size=dataset.vocab_size, block_size=data_config.block_size),
    )
    optimizer = create_optimizer(model, OptimizerConfig(**config["optimizer_config"]))
    Trainer(TrainerConfig(**config["trainer_config"]), model, optimizer, dataset).train()
    destroy_process_group()


if __name__ == "__main__":
    main()
