"""What the doctor can find, how findings are collected, and which of them have one cause. No torch, no thread."""
