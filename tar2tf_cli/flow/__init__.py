"""One input in, encoded examples out: samples through ops and features under the error policy."""
