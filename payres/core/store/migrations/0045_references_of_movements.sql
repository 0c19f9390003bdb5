create index movement_of_reference on movement (reference) where reference is not null;
