"""What NCCL prints, understood: lines to records, records to communicators and last calls, messages to meanings."""
