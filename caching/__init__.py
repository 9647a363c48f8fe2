"""Files on disk that many processes share, so that each is made once."""
