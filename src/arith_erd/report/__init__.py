"""Compare the paper's figures and claims with ours, from run directories alone. Imports no torch."""
