# SPDX-License-Identifier: Apache-2.0
# The chart of frontier.sh: csv and svg are set by it. A line joins the slacks of one lag and handle size.
set terminal svg size 1350,560 font "sans,12" background "white"
set output svg
set datafile separator ","
set logscale xy
set format xy "%g"
set xlabel "time lost to driver calls and waits, % (simulated)"
set yrange [0.5:1200]
set grid lc rgb "#dddddd"
set offsets graph 0.05, graph 0.05, graph 0.05, graph 0.05
set key off

# columns by their names in the head
column_of(name) = int(system(sprintf("awk -F, '!/^#/ { for (i = 1; i <= NF; i++) if ($i == \"%s\") print i; exit }' '%s'", name, csv)))
policy = column_of("policy"); backing = column_of("backing"); lag = column_of("lag"); handle = column_of("handle")
footprint = column_of("footprint_ratio"); time = column_of("time_ratio")
where(test) = sprintf("< awk -F, '%s' '%s'", test, csv)
pool(t, l, h) = where(sprintf("$1 == \"%s.csv.xz\" && $%d == \"pool\" && $%d == \"vmm\" && $%d == \"%s\" && $%d == \"%s\"", \
                              t, policy, backing, lag, l, handle, h))
rival(t, p, l) = where(sprintf("$1 == \"%s.csv.xz\" && $%d == \"%s\" && $%d == \"raw\" && $%d == \"%s\"", \
                               t, policy, p, backing, lag, l))

lags = "0 32 200 1000"; handles = "2m 8m 32m 0"
colour(i) = word("#1b9e77 #d95f02 #7570b3 #e7298a", i)
mark(i) = int(word("6 4 8 2", i))

set multiplot layout 1,3 title "Memory against time, simulated (bench/traces.md). Colour is lag in events: green 0, orange 32, violet 200, pink 1000.\n\
The pool over one range: circle 2 MiB handles, square 8, triangle 32, cross by position; a line joins slack 1.0 ... 1.25.\n\
Black, lag 0 ... 1000: plus the pool over chunks (raw), star PyTorch's segments, diamond exact classes" font ",11"
do for [t in "gpt gen cp"] {
    set title t
    set ylabel (t eq "gpt" ? "held beyond peak live, %" : "")
    plot for [l = 1:words(lags)] for [h = 1:words(handles)] pool(t, word(lags, l), word(handles, h)) \
             using ((column(time) - 1) * 100):((column(footprint) - 1) * 100) with linespoints lc rgb colour(l) pt mark(h) ps 0.9, \
         for [l = 1:words(lags)] rival(t, "pool", word(lags, l)) using ((column(time) - 1) * 100):((column(footprint) - 1) * 100) with points lc rgb "black" pt 1 ps 1, \
         for [l = 1:words(lags)] rival(t, "segments", word(lags, l)) using ((column(time) - 1) * 100):((column(footprint) - 1) * 100) with points lc rgb "black" pt 3 ps 1, \
         for [l = 1:words(lags)] rival(t, "classes", word(lags, l)) using ((column(time) - 1) * 100):((column(footprint) - 1) * 100) with points lc rgb "black" pt 12 ps 1
}
unset multiplot
