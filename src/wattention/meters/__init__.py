"""Instruments: the measuring window and one file per instrument. Vendor libraries load when a meter opens."""
