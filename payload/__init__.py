"""Standard-library-only scripts that run inside pods."""
