"""The smallest settings that still train, for every test that trains: three bits, one layer, a second."""

NETWORK = ("task.bits=3", "model.net.d_model=16", "model.net.num_heads=2", "model.net.num_layers=1")

TINY = (
    *NETWORK,
    "data.batch_size=20",  # 48 training examples: two whole batches and a smaller one
    "trainer.max_epochs=2",
    "trainer.accelerator=cpu",
    "trainer.compile=false",
)

LEARNS = ("model=nanogpt", "model.optimizer.lr=0.01")  # enough for accuracies to move within four epochs

FOUR_EPOCHS = (*LEARNS, "trainer.max_epochs=4", "seed=0-1")
