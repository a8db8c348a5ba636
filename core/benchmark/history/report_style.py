"""The style sheet of reports, light and dark: colours of devices as in the window (`gui/widgets/theme.py`). Pure data,
any thread."""

STYLE = """\
:root { --page: #F4F5F7; --card: #FFFFFF; --line: #DFE3E8; --text: #1D2126; --dim: #5C6570; --note: #9C6200;
  --d0: #6A707A; --d1: #0072B2; --d2: #916700; --d3: #007F5C; --d4: #A1308A; --d5: #003281; --d6: #82370E;
    --d7: #776935; }
@media (prefers-color-scheme: dark) {
  :root { --page: #16181C; --card: #1C1F24; --line: #2A2E35; --text: #E4E7EB; --dim: #9AA0AA; --note: #F0B429;
    --d0: #8A8F98; --d1: #4FA3E0; --d2: #F2B33D; --d3: #2FC597; --d4: #E39CC4; --d5: #8CCBF2; --d6: #F07F3C;
      --d7: #F0E442; }
}
body { margin: 0; background: var(--page); color: var(--text); font: 14px/1.45 system-ui, sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 24px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: 16px 20px;
  margin: 16px 0; }
h1 { font-size: 22px; margin: 0 0 4px; } h2 { font-size: 17px; margin: 0 0 12px; } h3 { font-size: 14px;
  margin: 16px 0 6px; }
header p { margin: 4px 0; color: var(--dim); } header p.note { color: var(--note); }
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
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { text-align: left; padding: 4px 10px 4px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--dim); font-weight: 500; font-size: 12px; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
tr.simulated td { font-style: italic; } ul { margin: 8px 0; padding-left: 20px; }
"""
