module clinch/interop/zookeeper

go 1.20

require github.com/go-zookeeper/zk v1.0.4
