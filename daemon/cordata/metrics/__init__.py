"""What each process counts, and the page that shows it to Prometheus.

file       the counters of one process, in a file that is mapped into its memory; how others read it
series     what is counted: names, labels, buckets
process    the counters of this process, for the parts that count
backlog    what waits in the store, asked when somebody wants to know; bounded
rate       rate and latency of the last seconds, for people
page       all of it as Prometheus reads it
"""
