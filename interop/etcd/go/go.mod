module clinch/interop/etcd

go 1.20

require go.etcd.io/etcd/client/v3 v3.5.9
