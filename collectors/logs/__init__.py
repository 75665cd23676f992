"""What NCCL prints, understood: lines to records, records to communicators and what each rank called last."""
