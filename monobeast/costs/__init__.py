"""What the parts of training cost on this machine, and how fast they allow a run to be."""
