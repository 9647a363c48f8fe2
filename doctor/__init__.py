"""What an installation has, what is wrong with it, and how that is put right: facts only."""
