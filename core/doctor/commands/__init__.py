"""What the engine and the command line ask of the doctor."""
