import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.channel.socket.SocketChannel;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.handler.timeout.IdleStateHandler;
import java.net.InetSocketAddress;
import java.util.concurrent.TimeUnit;

/** An echo server that closes silent clients: two event loops, and IdleStateHandler with its defaults. */
public class NettyIdle {
    public static void main(String[] args) throws Exception {
        long timeoutMillis = Long.parseLong(args[0]);
        ServerBootstrap server = new ServerBootstrap()
                .group(new NioEventLoopGroup(1), new NioEventLoopGroup(2))
                .channel(NioServerSocketChannel.class)
                .option(ChannelOption.SO_BACKLOG, 4096)
                .childOption(ChannelOption.TCP_NODELAY, true)
                .childHandler(new ChannelInitializer<SocketChannel>() {
                    @Override
                    protected void initChannel(SocketChannel c) {
                        c.pipeline().addLast(
                                new IdleStateHandler(timeoutMillis, 0, 0, TimeUnit.MILLISECONDS), new EchoOrClose());
                    }
                });
        Channel listener = server.bind("127.0.0.1", 0).sync().channel();
        System.out.println("\"127.0.0.1:" + ((InetSocketAddress) listener.localAddress()).getPort() + "\"");
        while (System.in.read() >= 0) {
            // until the parent closes it
        }
        System.exit(0);
    }

    static class EchoOrClose extends ChannelInboundHandlerAdapter {
        @Override
        public void channelRead(ChannelHandlerContext ctx, Object msg) {
            ctx.writeAndFlush(msg);
        }

        @Override
        public void userEventTriggered(ChannelHandlerContext ctx, Object event) {
            ctx.close();
        }
    }
}
