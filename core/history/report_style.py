"""The style sheet of plots in reports, light and dark: colours of devices as in `gui/widgets/theme.py`. Pure data,
any thread."""

STYLE = """\
:root { --d0: #6A707A; --d1: #0072B2; --d2: #916700; --d3: #007F5C; --d4: #A1308A; --d5: #003281; --d6: #82370E;
  --d7: #776935; }
@media screen and (prefers-color-scheme: dark) {
  :root { --d0: #8A8F98; --d1: #4FA3E0; --d2: #F2B33D; --d3: #2FC597; --d4: #E39CC4; --d5: #8CCBF2; --d6: #F07F3C;
    --d7: #F0E442; }
}
figure { margin: 0 0 16px; } figcaption { color: var(--dim); font-size: 12px; }
svg { display: block; width: 100%; height: auto; font: 12px system-ui, sans-serif; }
svg text { fill: var(--text); } svg .tick { fill: var(--dim); font-size: 11px; }
svg .value { font-variant-numeric: tabular-nums; }
.grid { stroke: var(--line); } .whisker { stroke: var(--text); stroke-width: 1.2; }
.bar { fill: var(--c); stroke: var(--c); } .bar.simulated { fill-opacity: .15; stroke-dasharray: 4 3; }
.curve { fill: none; stroke: var(--c); stroke-width: 1.4; } .curve.simulated { stroke-dasharray: 5 4; }
.dot { fill: var(--c); }
.d0 { --c: var(--d0); } .d1 { --c: var(--d1); } .d2 { --c: var(--d2); } .d3 { --c: var(--d3); }
.d4 { --c: var(--d4); } .d5 { --c: var(--d5); } .d6 { --c: var(--d6); } .d7 { --c: var(--d7); }
"""
