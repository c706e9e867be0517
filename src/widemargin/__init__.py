"""widemargin: kernel classifiers that shape the whole margin, exact and with a certificate."""
